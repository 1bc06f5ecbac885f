"""The workload: an engine and a trainer that take turns, every turn checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pybench.model.text import amount_text
from pybench.model.wire import Metric, Span, Work
from pybench.model.workloads.turn import CHECK, Turn
from pybench.worker.backend import StepOutcome, cause_of
from pybench.worker.backends.common_torch.memory import device_memory_used, memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks, wait_for
from pybench.worker.backends.common_torch.samples import step_prompts
from pybench.worker.backends.turn.delivery import (
    Digests,
    HandoverFolder,
    Named,
    adapter_config,
    check_changed,
    check_computes,
    check_received,
    digest,
)
from pybench.worker.backends.turn.party import InferenceEngine, Party, pinned_bytes
from pybench.worker.backends.turn.trainer import Trainer

_DISCARDED = 2


class Turns:
    """This rank's part of every turn. A rank may have an engine, a trainer, or both; together they have one of each.

    The trainer is over the ranks ``training``. Closing ends the engine, which a failure to begin does as well.
    With ``async_weight_syncing`` a turn begins with the engine's sleep and ends with generating, halfway through which
    the engine gets its new weights.
    """

    def __init__(
        self,
        settings: Turn,
        architecture: dict[str, Any],
        party: Party,
        engine: InferenceEngine | None,
        training: TorchRanks,
    ) -> None:
        self._settings = settings
        self._vocab_size = architecture["vocab_size"]
        self._party = party
        self._engine = engine
        self._trainer: Trainer | None = None
        self._folder: HandoverFolder | None = None
        self._sent: Digests = []
        self._spans: list[Span] = []
        self._resident_bytes: int | None = None
        # Threads that shared a copy in host memory wait for the next one by spinning, through the phases that follow.
        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(settings.seed)
        shape = (settings.batch_size, settings.longest_sequence_tokens)
        # Input of the trainer's first step, before any generation.
        self._sequences = torch.randint(self._vocab_size, shape, generator=generator)
        try:
            self._first_sleep_s = self._begin(architecture, training)
        except BaseException:
            self.close()
            raise

    def step(self, index: int) -> StepOutcome:
        """Take the turns of step ``index``."""
        settings = self._settings
        self._spans.clear()
        values: dict[str, float] = {}
        for number in range(settings.turns):
            of_turn = self._turn(index * settings.turns + number)
            values = {name: max(value, values.get(name, value)) for name, value in of_turn.items()}
        samples = settings.turns * settings.batch_size
        work = Work(
            prompt_tokens=samples * settings.prompt_tokens,
            output_tokens=samples * settings.output_tokens,
            samples=samples,
        )
        return StepOutcome(work=work, values=values, spans=tuple(self._spans))

    def metrics(self) -> tuple[Metric, ...]:
        """Memory of this process, and the first time that the engine fell asleep."""
        first = Metric(name="first_sleep_s", value=self._first_sleep_s, unit="s")
        device, settings = self._party.device, self._settings
        # In one process torch counts vLLM's pools also while they sleep and have no memory.
        is_shared = settings.backend == "vllm" and settings.num_processes == 1
        memory = (device_memory_used(device),) if is_shared else memory_metrics(device)
        return (*memory, *((first,) if self._engine else ()))

    def close(self) -> None:
        """End the engine, and free what a handover left in memory."""
        if self._folder is not None:
            self._folder.remove()
        if self._engine is not None:
            self._engine.close()

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Record a phase, which begins at a barrier over all ranks, and ends on each rank when its device is done.

        A phase that raises leaves no span.
        """
        party = self._party
        party.barrier()
        start_ns = time.monotonic_ns()
        yield
        wait_for(party.device)
        end_ns = time.monotonic_ns()
        party.barrier()  # a rank without work would read the memory of the others' work
        pinned = pinned_bytes() if party.device.type == "cuda" else 0
        host_bytes = pinned + (self._engine.host_bytes() if self._engine is not None else 0)
        device_bytes = party.device_bytes()
        span = Span(name=name, start_ns=start_ns, end_ns=end_ns, device_bytes=device_bytes, host_bytes=host_bytes)
        self._spans.append(span)

    def _engine_phase(self, name: str, work: Callable[[InferenceEngine], None]) -> None:
        """A phase in which only the engine works, on the ranks that have it."""
        with self._phase(name):
            if self._engine is not None:
                work(self._engine)

    def _begin(self, architecture: dict[str, Any], training: TorchRanks) -> float:
        """The trainer's first step, with its weights handed over: both sides are as they are before every turn.

        It is no turn: adapters begin as zeros, which leave others without gradient. Returns the seconds that the engine
        took to fall asleep for the first time.
        """
        self._fall_asleep()
        with self._explained_memory():
            if self._party.trains:
                self._trainer = Trainer(self._settings, architecture, training)
                if self._settings.handover == "file":
                    self._folder = HandoverFolder(self._trainer.handover_bytes)
            self._train()
        self._sent = self._expected()
        self._hand_over()
        self._compare_held()
        return sum(span.end_ns - span.start_ns for span in self._spans if span.name == "engine_sleep") / 1e9

    def _turn(self, number: int) -> dict[str, float]:
        settings, engine, trainer = self._settings, self._engine, self._trainer
        if not settings.async_weight_syncing:
            self._generate(number)
        probe = self._sequences[0]
        self._fall_asleep()
        with self._explained_memory():
            if settings.sleep_level:
                with self._phase("trainer_onload"):
                    if trainer is not None:
                        trainer.load()
            with self._phase(CHECK):
                # All ranks of the trainer compute them together, for a trained sequence.
                old = trainer.log_probabilities(probe) if trainer is not None else None
            self._train()
        with self._phase(CHECK):
            before, self._sent = self._sent, self._expected()
            num_rounded, new = 0, None
            if trainer is not None:
                num_rounded = check_changed(before, self._sent, trainer.trainable_names)
                new = trainer.log_probabilities(probe)
        self._hand_over(behind=settings.async_weight_syncing)
        if settings.async_weight_syncing:
            self._generate(number)
        else:
            prompt = self._sequences[0, : settings.prompt_tokens]
            self._engine_phase("first_token", lambda engine: engine.first_token(prompt))
        with self._phase(CHECK):
            self._compare_held()
            # The engine's log-probabilities of the sequence against the trainer's, after its step and before.
            gaps: dict[str, float] = {}
            if engine is not None:
                computed = engine.log_probabilities(probe)
                if new is not None and old is not None:
                    gaps = check_computes(computed, new, old, settings.dtype)
        sent = {} if trainer is None else {"handover_bytes": float(trainer.handover_bytes)}
        return {
            **gaps,
            **sent,
            "staleness_turns": float(settings.async_weight_syncing),
            "rounded_updates": float(num_rounded),
        }

    def _generate(self, number: int) -> None:
        prompts, engine = step_prompts(self._settings.generation, 0, number, self._vocab_size), self._engine
        with self._phase("generate"):
            sequences = None
            if engine is not None:
                sequences = engine.generate(prompts, engine.apply if self._settings.async_weight_syncing else None)
            self._sequences = self._party.shared(sequences, (len(prompts), self._settings.longest_sequence_tokens))

    def _fall_asleep(self) -> None:
        self._engine_phase("engine_sleep", lambda engine: engine.sleep(self._settings.sleep_level))
        self._resident_bytes = self._spans[-1].device_bytes

    def _train(self) -> None:
        with self._phase("train"):
            if self._trainer is not None:
                self._trainer.train(self._sequences)

    def _hand_over(self, *, behind: bool = False) -> None:
        """The trainer's weights to the engine, which is awake afterwards, and the trainer away.

        Weights that go from one GPU memory to the other leave last, for both must be there; a file is written first and
        read when the trainer has left.
        """
        engine, trainer = self._engine, self._trainer
        if self._settings.handover != "file" and self._settings.lora_rank is None:
            self._offload(weights=False)
            self._wake_weights()
            with self._phase("handover"):
                assert engine is not None, "weights go from memory to memory where each rank has a part of the engine"
                assert trainer is not None, "and trains"
                engine.receive(trainer.weights(trainable=True))
            self._offload(states=False)
        else:
            with self._phase("handover"):
                message = self._leave_behind()
            self._offload()
            self._wake_weights()
            if not behind:
                self._engine_phase(
                    "handover",
                    lambda engine: engine.read(message) if isinstance(message, Path) else engine.receive(message),
                )
        self._engine_phase("wake_cache", lambda engine: engine.wake_cache())
        if behind and engine is not None:
            assert isinstance(message, Path), "only a file is read while the engine generates"
            engine.prefetch(message)

    def _leave_behind(self) -> Path | list[Named]:
        """A file of all trained weights, or copies of adapters, which stay when the trainer's own are gone.

        All ranks of the trainer gather the weights, the first writes them.
        """
        weights = self._trainer.weights(trainable=True) if self._trainer is not None else iter(())
        if self._settings.handover != "file":
            assert self._trainer is not None, "adapters go from memory to memory where each rank trains"
            return [(name, weight.clone()) for name, weight in weights]
        file = None
        if self._folder is not None and self._party.ranks.rank == 0:
            file = str(self._folder.write(weights, adapter_config(self._settings)))
        else:
            for _ in weights:
                pass
        return Path(self._party.broadcast(file))

    def _offload(self, *, states: bool = True, weights: bool = True) -> None:
        if not self._settings.sleep_level:
            return
        with self._phase("trainer_offload"):
            if self._trainer is not None and states:
                self._trainer.offload_states()
            if self._trainer is not None and weights:
                self._trainer.offload_weights()

    def _wake_weights(self) -> None:
        self._engine_phase("wake_weights", lambda engine: engine.wake_weights())
        if self._settings.sleep_level == _DISCARDED:
            self._engine_phase(CHECK, lambda engine: engine.poison())

    def _expected(self) -> Digests:
        """Expected digests of each shard of this rank's engine. All ranks of the trainer gather together."""
        engine = self._engine
        digests: Digests = [{} for _ in range(engine.num_shards if engine else 0)]
        for name, whole in self._trainer.weights() if self._trainer else ():
            for shard, of_shard in enumerate(digests):
                assert engine is not None
                of_shard[name] = digest(engine.part(shard, name, whole))
        return digests

    def _compare_held(self) -> None:
        if self._engine is not None:
            held = self._engine.digests()
            if self._trainer is not None:
                check_received(self._sent, held)

    @contextmanager
    def _explained_memory(self) -> Iterator[None]:
        """Add the engine's memory to the error when the trainer runs out of memory."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if cause_of(error) != "out_of_memory":
                raise
            held = "an unknown amount" if self._resident_bytes is None else amount_text(self._resident_bytes)
            raise RuntimeError(
                f"out of memory: {held} was in use with the engine asleep at level {self._settings.sleep_level} before "
                "the trainer ran out; take a higher sleep_level, a smaller batch_size_per_gpu, or "
                f"activation_checkpointing = 'full': {str(error).splitlines()[0] if str(error) else error!r}"
            ) from error
