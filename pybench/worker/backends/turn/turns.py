"""The workload: an engine and a trainer that take turns, every turn checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from pybench.model.backend import is_out_of_memory
from pybench.model.text import amount_text
from pybench.model.wire import Metric, Work
from pybench.model.workloads.turn import CHECK, Turn
from pybench.worker.backend import StepOutcome
from pybench.worker.backends.common_torch.memory import device_memory_used, memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.common_torch.samples import step_prompts
from pybench.worker.backends.turn.delivery import digest
from pybench.worker.backends.turn.handover import Digests, Handover, check_changed, check_computes, check_received
from pybench.worker.backends.turn.party import InferenceEngine, Party, Recorder
from pybench.worker.backends.turn.trainer import Trainer

_DISCARDED = 2


@contextmanager
def taking_turns(
    settings: Turn, architecture: dict[str, Any], party: Party, engine: InferenceEngine | None, training: TorchRanks
) -> Iterator[Turns]:
    """Turns of ``engine`` and a trainer over the ranks ``training``; both are closed in the end."""
    vocab_size = architecture["vocab_size"]
    with (
        nullcontext() if engine is None else closing(engine),
        closing(Turns(settings, vocab_size, party, engine, lambda: Trainer(settings, architecture, training))) as work,
    ):
        yield work


class Turns:
    """This rank's part of every turn. A rank may have an engine, a trainer, or both; together they have one of each.

    With ``async_weight_syncing`` a turn begins with the engine's sleep and ends with generating, halfway through which
    the engine gets its new weights.
    """

    def __init__(
        self,
        settings: Turn,
        vocab_size: int,
        party: Party,
        engine: InferenceEngine | None,
        make_trainer: Callable[[], Trainer],
    ) -> None:
        self._settings = settings
        self._vocab_size = vocab_size
        self._party = party
        self._engine = engine
        self._trainer: Trainer | None = None
        self._offloads = settings.sleep_level > 0
        self._sent: Digests = []
        self._resident_bytes: int | None = None
        self._handover: Handover | None = None
        # Threads that shared a copy in host memory wait for the next one by spinning, through the phases that follow.
        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(settings.seed)
        shape = (settings.batch_size, settings.longest_sequence_tokens)
        # Input of the trainer's first step, before any generation.
        self._sequences = torch.randint(vocab_size, shape, generator=generator)
        try:
            self._first_sleep_s = self._begin(make_trainer)
        except BaseException:
            self.close()
            raise

    def step(self, index: int) -> StepOutcome:
        """Take the turns of step ``index``."""
        settings = self._settings
        recorder = Recorder(self._party, self._engine)
        values: dict[str, float] = {}
        for number in range(settings.turns):
            of_turn = self._turn(index * settings.turns + number, recorder)
            values = {name: max(value, values.get(name, value)) for name, value in of_turn.items()}
        samples = settings.turns * settings.batch_size
        work = Work(
            prompt_tokens=samples * settings.prompt_tokens,
            output_tokens=samples * settings.output_tokens,
            samples=samples,
        )
        return StepOutcome(work=work, values=values, spans=tuple(recorder.spans))

    def metrics(self) -> tuple[Metric, ...]:
        """Memory of this process, and the first time that the engine fell asleep."""
        first = Metric(name="first_sleep_s", value=self._first_sleep_s, unit="s")
        device, settings = self._party.device, self._settings
        # In one process torch counts vLLM's pools also while they sleep and have no memory.
        is_shared = settings.backend == "vllm" and settings.num_processes == 1
        memory = (device_memory_used(device),) if is_shared else memory_metrics(device)
        return (*memory, *((first,) if self._engine else ()))

    def close(self) -> None:
        """Free what a handover left in memory."""
        if self._handover is not None:
            self._handover.close()

    def _begin(self, make_trainer: Callable[[], Trainer]) -> float:
        """The trainer's first step, with its weights handed over: both sides are as they are before every turn.

        It is no turn: adapters begin as zeros, which leave others without gradient. Returns the seconds that the engine
        took to fall asleep for the first time.
        """
        recorder = Recorder(self._party, self._engine)
        self._fall_asleep(recorder)
        with self._explained_memory():
            if self._party.trains:
                self._trainer = make_trainer()
            self._handover = Handover(self._settings, self._party, self._engine, self._trainer)
            self._train(recorder)
        self._sent = self._expected()
        self._hand_over(self._handover, recorder)
        self._compare_held()
        return sum(span.end_ns - span.start_ns for span in recorder.spans if span.name == "engine_sleep") / 1e9

    def _turn(self, number: int, recorder: Recorder) -> dict[str, float]:
        settings, handover = self._settings, self._handover
        assert handover is not None, "the first step has made it"
        if not settings.async_weight_syncing:
            self._generate(number, recorder, None)
        probe = self._sequences[0]
        self._fall_asleep(recorder)
        with self._explained_memory():
            if self._offloads:
                with recorder.phase("trainer_onload"):
                    if self._trainer is not None:
                        self._trainer.load()
            with recorder.phase(CHECK):
                old = self._trainer_log_probabilities(probe)
            self._train(recorder)
        with recorder.phase(CHECK):
            before, self._sent = self._sent, self._expected()
            num_rounded = 0
            if (trainer := self._trainer) is not None:
                num_rounded = check_changed(before, self._sent, trainer.trainable_names())
            new = self._trainer_log_probabilities(probe)
        self._hand_over(handover, recorder, behind=settings.async_weight_syncing)
        if settings.async_weight_syncing:
            self._generate(number, recorder, None if self._engine is None else self._engine.apply)
        else:
            with recorder.phase("first_token"):
                if self._engine is not None:
                    self._engine.first_token(self._sequences[0, : settings.prompt_tokens])
        with recorder.phase(CHECK):
            self._compare_held()
            # The engine's log-probabilities of the sequence beside the trainer's, after its step and before.
            gaps: dict[str, float] = {}
            if self._engine is not None:
                computed = self._engine.log_probabilities(probe)
                if new is not None and old is not None:
                    gaps = check_computes(computed, new, old, settings.dtype)
        sent = {} if trainer is None else {"handover_bytes": float(trainer.handover_bytes)}
        return {
            **gaps,
            **sent,
            "staleness_turns": float(settings.async_weight_syncing),
            "rounded_updates": float(num_rounded),
        }

    def _generate(self, number: int, recorder: Recorder, halfway: Callable[[], None] | None) -> None:
        prompts = step_prompts(self._settings.generation, 0, number, self._vocab_size)
        with recorder.phase("generate"):
            sequences = self._engine.generate(prompts, halfway) if self._engine is not None else None
            self._sequences = self._party.shared(sequences, (len(prompts), self._settings.longest_sequence_tokens))

    def _fall_asleep(self, recorder: Recorder) -> None:
        with recorder.phase("engine_sleep"):
            if self._engine is not None:
                self._engine.sleep(self._settings.sleep_level)
        self._resident_bytes = recorder.spans[-1].device_bytes

    def _train(self, recorder: Recorder) -> None:
        with recorder.phase("train"):
            if self._trainer is not None:
                self._trainer.train(self._sequences)

    def _hand_over(self, handover: Handover, recorder: Recorder, *, behind: bool = False) -> None:
        """The trainer's weights to the engine, which is awake afterwards, and the trainer away.

        Weights that go from memory to memory leave last; a file is written first and read when the trainer has left.
        """
        engine = self._engine
        if handover.streams:
            self._offload(recorder, weights=False)
            self._wake_weights(recorder)
            with recorder.phase("handover"):
                handover.send()
            self._offload(recorder, states=False)
        else:
            with recorder.phase("handover"):
                message = handover.leave_behind()
            self._offload(recorder)
            self._wake_weights(recorder)
            if not behind:
                with recorder.phase("handover"):
                    if engine is not None:
                        if isinstance(message, Path):
                            engine.read(message)
                        else:
                            engine.receive(message)
        with recorder.phase("wake_cache"):
            if engine is not None:
                engine.wake_cache()
        if behind and engine is not None:
            assert isinstance(message, Path), "only a file is read while the engine generates"
            engine.prefetch(message)

    def _offload(self, recorder: Recorder, *, states: bool = True, weights: bool = True) -> None:
        if not self._offloads:
            return
        with recorder.phase("trainer_offload"):
            if self._trainer is not None and states:
                self._trainer.offload_states()
            if self._trainer is not None and weights:
                self._trainer.offload_weights()

    def _wake_weights(self, recorder: Recorder) -> None:
        with recorder.phase("wake_weights"):
            if self._engine is not None:
                self._engine.wake_weights()
        if self._settings.sleep_level == _DISCARDED:
            with recorder.phase(CHECK):
                if self._engine is not None:
                    self._engine.poison()

    def _expected(self) -> Digests:
        """Expected digests of each shard of this rank's engine. All ranks of the trainer gather together."""
        engine = self._engine
        digests: Digests = [{} for _ in range(engine.num_shards if engine else 0)]
        for name, whole in self._trainer.weights() if self._trainer else ():
            for shard, own in enumerate(digests):
                assert engine is not None
                own[name] = digest(engine.part(shard, name, whole))
        return digests

    def _compare_held(self) -> None:
        if self._engine is not None:
            held = self._engine.digests()
            if self._trainer is not None:
                check_received(self._sent, held)

    def _trainer_log_probabilities(self, probe: torch.Tensor) -> torch.Tensor | None:
        """Log-probabilities of a trained sequence, computed by all ranks of the trainer together."""
        return self._trainer.log_probabilities(probe) if self._trainer is not None else None

    @contextmanager
    def _explained_memory(self) -> Iterator[None]:
        """Add the engine's memory to the error when the trainer runs out of memory."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(str(error)) and not isinstance(error, MemoryError):
                raise
            held = "an unknown amount" if self._resident_bytes is None else amount_text(self._resident_bytes)
            raise RuntimeError(
                f"out of memory: {held} was in use with the engine asleep at level {self._settings.sleep_level} before "
                "the trainer ran out; take a higher sleep_level, a smaller batch_size_per_gpu, or "
                f"activation_checkpointing = 'full': {str(error).splitlines()[0] if str(error) else error!r}"
            ) from error
