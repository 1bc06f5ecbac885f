"""Turns of the vllm backend: which processes have the engine, which the trainer."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import torch
import vllm
from vllm.config.lora import MaxLoRARanks
from vllm.engine.arg_utils import EngineArgs

from pybench.model.wire import WorkOrder
from pybench.model.workloads.generate import decided_arguments
from pybench.model.workloads.turn import Turn
from pybench.worker.backends.common_torch.process_group import TorchRanks, describe, joined
from pybench.worker.backends.engine.start import config_folder, forget_torchrun, merged
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.turn.party import Party
from pybench.worker.backends.turn.trainer import Trainer
from pybench.worker.backends.turn.turns import Turns
from pybench.worker.backends.vllm.arguments import engine_arguments
from pybench.worker.backends.vllm.engines import BatchEngine, engine_errors
from pybench.worker.backends.vllm.turn_engine import VllmEngine
from pybench.worker.gpus import show_by_number, visible_gpus
from pybench.worker.header import Device
from pybench.worker.process import end_group_with_me
from pybench.worker.ranks import Ranks

_WORKER = "pybench.worker.backends.vllm.turn_worker.TurnWorker"
_IN_PROCESS = "VLLM_ENABLE_V1_MULTIPROCESSING"


@contextmanager
def joined_trainers(order: WorkOrder) -> Iterator[tuple[Ranks, Device]]:
    """Take this trainer's GPU and meet the other ones. Must come before anything that starts CUDA."""
    end_group_with_me()
    show_by_number(visible_gpus())
    with joined(order) as ranks:
        if not _drives_in_process(_settings(order)):
            forget_torchrun()
        yield ranks, describe(ranks.device, 0)


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
    party = Party(ranks.rank, ranks.world_size, device, _watched(settings, ranks.rank))
    with config_folder(architecture, settings.dtype) as folder:
        task = Task(settings.training, architecture, training)
        engine = _engine(settings, task, folder)
        try:
            work = Turns(
                settings, architecture["vocab_size"], party, engine, lambda: Trainer(settings, architecture, training)
            )
            try:
                yield work
            finally:
                work.close()
        finally:
            if engine is not None:
                engine.close()


def _engine(settings: Turn, task: Task, folder: Path) -> VllmEngine | None:
    """``None`` on a rank that another one's engine reaches by processes of its own."""
    degree, rank = settings.tensor_parallel, task.ranks.rank
    split = _drives_in_process(settings)
    if rank > 0 and not split:
        return None
    valid = {field.name for field in dataclasses.fields(EngineArgs)}
    decided = decided_arguments("vllm", Turn)
    arguments = merged(
        turn_arguments(settings, folder), settings.engine_args, valid, f"vllm {vllm.__version__}", decided
    )
    with engine_errors():
        started = BatchEngine(arguments)
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
        ours |= {"enable_lora": True, "max_loras": 1, "max_lora_rank": _least(settings.lora_rank)}
    return ours


def _least(rank: int) -> int:
    """Room for adapters comes in some ranks only: the least that holds ``rank``."""
    sizes: Sequence[int] = get_args(MaxLoRARanks)
    return min((size for size in sizes if size >= rank), default=rank)


def _drives_in_process(settings: Turn) -> bool:
    """Whether each of several ranks is a part of the engine itself."""
    return settings.num_trainers > 1 and settings.num_processes == 1


def _watched(settings: Turn, rank: int) -> tuple[str, ...]:
    """GPUs whose memory this rank reads."""
    gpus = tuple(gpu.uuid for gpu in visible_gpus())
    return gpus[rank : rank + 1] if settings.num_trainers > 1 else gpus[: settings.tensor_parallel]


def _settings(order: WorkOrder) -> Turn:
    assert isinstance(order.settings, Turn)
    return order.settings
