"""Turns of the vllm backend: its engine, in this process or in processes of its own, and who has the trainer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, get_args

import torch
from vllm.config.lora import MaxLoRARanks
from vllm.lora.request import LoRARequest

from pybench.model.wire import WorkOrder
from pybench.model.workloads.turn import Turn
from pybench.worker.backends.common_torch.process_group import TorchRanks, joined
from pybench.worker.backends.engine import config_folder, forget_torchrun
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.model import trainable_model
from pybench.worker.backends.torch.train.update import lora_options
from pybench.worker.backends.turn.delivery import Named, adapter_config
from pybench.worker.backends.turn.party import Party
from pybench.worker.backends.turn.turns import Turns
from pybench.worker.backends.vllm.engines import BatchEngine, completed, engine_errors, sampling
from pybench.worker.backends.vllm.translation import engine_arguments, prompt_of
from pybench.worker.backends.vllm.worker import ADAPTER_ID, CACHE, WEIGHTS, Layout, cut
from pybench.worker.exchange import Device
from pybench.worker.gpus import show_by_number, visible_gpus
from pybench.worker.process import end_group_with_me
from pybench.worker.ranks import Ranks

_WORKER = "pybench.worker.backends.vllm.worker.TurnWorker"
_IN_PROCESS = "VLLM_ENABLE_V1_MULTIPROCESSING"


@contextmanager
def joined_trainers(order: WorkOrder) -> Iterator[tuple[Ranks, Device]]:
    """Take this trainer's GPU and meet the other ones. Must come before anything that starts CUDA."""
    end_group_with_me()
    show_by_number(visible_gpus())
    with joined(order) as joining:
        if not _drives_in_process(_settings(order)):
            forget_torchrun()
        yield joining


@contextmanager
def turns(order: WorkOrder, ranks: Ranks) -> Iterator[Turns]:
    """Start the engine, or this rank's part of it, then the trainer, where this rank has one."""
    settings, architecture = _settings(order), order.architecture
    assert architecture is not None
    if settings.num_processes == 1:
        os.environ[_IN_PROCESS] = "0"
    device = torch.device("cuda", ranks.rank if settings.num_trainers > 1 else 0)
    torch.cuda.set_device(device)
    training = TorchRanks(ranks.rank, ranks.world_size, device)
    gpus = tuple(gpu.uuid for gpu in visible_gpus())
    watched = gpus[ranks.rank :][:1] if settings.num_trainers > 1 else gpus[: settings.tensor_parallel]
    party = Party(training, watched)
    with config_folder(architecture, settings.dtype) as folder:
        task = Task(settings.training, architecture, training)
        engine = _engine(settings, task, folder)
        with closing(Turns(settings, architecture, party, engine, training)) as work:
            yield work


def _engine(settings: Turn, task: Task, folder: Path) -> VllmEngine | None:
    """``None`` on a rank that another one's engine reaches by processes of its own."""
    degree, rank = settings.tensor_parallel, task.ranks.rank
    split = _drives_in_process(settings)
    if rank > 0 and not split:
        return None
    started = BatchEngine(completed(turn_arguments(settings, folder), settings))
    try:
        return VllmEngine(settings, task, started, (rank,) if split else range(degree))
    except BaseException:
        started.close()
        raise


def turn_arguments(settings: Turn, folder: Path) -> dict[str, Any]:
    """Keywords of ``EngineArgs``: those of generation, with sleep mode where it sleeps, and room for one token more.

    Nothing reads the engine's statistics, so it computes none, as ``vllm.LLM`` by default.
    """
    ours = engine_arguments(settings.generation, folder)
    ours["disable_log_stats"] = True
    ours["worker_extension_cls"] = _WORKER
    ours["max_model_len"] += 1
    if settings.sleep_level:
        ours["enable_sleep_mode"] = True
    if _drives_in_process(settings):
        ours["distributed_executor_backend"] = "external_launcher"
    if settings.lora_rank is not None:
        sizes: Sequence[int] = get_args(MaxLoRARanks)
        least = min((size for size in sizes if size >= settings.lora_rank), default=settings.lora_rank)
        ours |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": least}
    return ours


def _drives_in_process(settings: Turn) -> bool:
    """Whether each of several ranks is a part of the engine itself."""
    return settings.num_trainers > 1 and settings.num_processes == 1


def _settings(order: WorkOrder) -> Turn:
    assert isinstance(order.settings, Turn)
    return order.settings


class VllmEngine:
    """One engine. ``shards`` are those of its GPUs that this process compares.

    Prefix caching is off, so that no cached prompt is the old weights'.
    """

    def __init__(self, settings: Turn, task: Task, engine: BatchEngine, shards: Sequence[int]) -> None:
        self._settings = settings
        self._engine = engine
        self.num_shards = len(shards)
        self._layouts = [Layout(task.architecture, shard, settings.tensor_parallel) for shard in shards]
        self._adapter = adapter_config(settings)
        self._adapter_folder = "none"
        self._asleep_tags: tuple[str, ...] = ()
        # Ranks that each drive a part of one engine must sample the same tokens, whatever their trainers draw.
        seeds = len(shards) < settings.tensor_parallel
        # Made once: making one takes a large part of a short phase. vLLM copies them.
        self._answering = [
            sampling(settings.output_tokens, seed=n if seeds else None) for n in range(settings.batch_size)
        ]
        self._first = [sampling(1, seed=0 if seeds else None)]
        self._scoring = [sampling(1, seed=0 if seeds else None, prompt_logprobs=0)]
        model, _ = trainable_model(task)
        names = [(name, list(weight.shape)) for name, weight in model.named_parameters()]
        given = (dict(task.architecture), settings.dtype, settings.seed, task.settings.weights == "nf4")
        self._engine.ask_workers("pybench_fill", *given, names, settings.tensor_parallel)

    def generate(self, prompts: torch.Tensor, halfway: Callable[[], None] | None) -> torch.Tensor:
        """All at once, sampled at temperature 1."""
        listed: list[list[int]] = prompts.tolist()
        outputs = self._run(listed, self._answering, halfway)
        answers = [list(output.outputs[0].token_ids) for output in outputs]
        return torch.cat([prompts, torch.tensor(answers, dtype=torch.long)], dim=1)

    def first_token(self, prompt: torch.Tensor) -> None:
        """One request for one token."""
        self._run([prompt.tolist()], self._first)

    def log_probabilities(self, tokens: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of a prompt's tokens, as the engine reports them."""
        [output] = self._run([tokens.tolist()], self._scoring)
        logprobs = [
            at[token].logprob for at, token in zip(output.prompt_logprobs[1:], tokens.tolist()[1:], strict=True)
        ]
        return torch.tensor(logprobs, dtype=torch.float32)

    def sleep(self, level: int) -> None:
        """The library's own sleep."""
        with engine_errors():
            self._engine.engine.sleep(level)
        self._asleep_tags = (WEIGHTS, CACHE) if level else ()

    def wake_weights(self) -> None:
        """The library's own wake of the tag; at level 0 nothing slept but the scheduler."""
        if self._asleep_tags:
            with engine_errors():
                self._engine.engine.wake_up([WEIGHTS])
            self._asleep_tags = (CACHE,)

    def wake_cache(self) -> None:
        """The remaining tag, named: a wake without tags would map the weights' memory again."""
        with engine_errors():
            self._engine.engine.wake_up([CACHE] if self._asleep_tags else ["scheduling"])
        self._asleep_tags = ()

    def poison(self) -> None:
        """Poison every worker."""
        self._engine.ask_workers("pybench_poison")

    def receive(self, tensors: Iterable[Named]) -> None:
        """Tensors as they are, in one call: vLLM looks through its model at each."""
        self._engine.ask_workers("pybench_receive", tensors, self._adapter)

    def read(self, file: Path) -> None:
        """An adapter by vLLM's own loader, weights by its model's."""
        if self._adapter is None:
            self._engine.ask_workers("pybench_read", str(file))
            return
        self._adapter_folder = str(file.parent)
        with engine_errors():
            self._engine.engine.add_lora(self._request(load_inplace=True))

    def prefetch(self, file: Path) -> None:
        """An adapter is read when it is taken: it is small."""
        if self._adapter is None:
            self._engine.ask_workers("pybench_prefetch", str(file))
        else:
            self._adapter_folder = str(file.parent)

    def apply(self) -> None:
        """Between two steps of the engine."""
        if self._adapter is None:
            self._engine.ask_workers("pybench_apply")
        else:
            self.read(Path(self._adapter_folder) / "adapter")

    def part(self, shard: int, name: str, whole: torch.Tensor) -> torch.Tensor:
        """Cut as vLLM cuts it; it scales the second half of adapters when it loads them."""
        layout = self._layouts[shard]
        part = cut(whole, layout.slice_of(name, tuple(whole.shape)))
        if ".lora_B." in name:
            options = lora_options(self._settings.training)
            return part * float(options["lora_alpha"] / options["r"])
        return part

    def digests(self) -> list[dict[str, int]]:
        """Digests of every worker of this engine."""
        digests: list[dict[str, int]] = self._engine.ask_workers("pybench_digests")
        return digests

    def host_bytes(self) -> int:
        """Pinned bytes of the engine's other processes."""
        if self._settings.num_processes == 1:
            return 0
        return sum(self._engine.ask_workers("pybench_pinned_bytes"))

    def close(self) -> None:
        """End the engine's processes."""
        self._engine.close()

    def _run(self, prompts: list[list[int]], params: list[Any], halfway: Callable[[], None] | None = None) -> list[Any]:
        request = self._request() if self._adapter is not None else None
        work = [(prompt_of(prompt), param) for prompt, param in zip(prompts, params, strict=True)]
        return self._engine.run(work, request, halfway, after=self._settings.output_tokens // 2)

    def _request(self, *, load_inplace: bool = False) -> Any:
        return LoRARequest("adapter", ADAPTER_ID, self._adapter_folder, load_inplace=load_inplace)
