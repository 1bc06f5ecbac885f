"""The transformers backend: join the ranks, load a model, generate or evaluate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from pybench.model.wire import WorkOrder
from pybench.model.workloads.evaluate import Evaluate
from pybench.worker.backend import Session, generation_of
from pybench.worker.backends.common_torch.memory import with_own_memory
from pybench.worker.backends.common_torch.process_group import TorchRanks, describe, joined, replica_of
from pybench.worker.backends.transformers.generate import evaluations, generations, visible_devices
from pybench.worker.header import Device
from pybench.worker.ranks import rank_numbers


@contextmanager
def join(order: WorkOrder) -> Iterator[tuple[TorchRanks, Device]]:
    """Take this rank's GPU, or its group of GPUs where layers are spread, and meet the other ranks."""
    stages = getattr(order.settings, "pipeline_parallel", 1)
    spread = order.device == "cuda" and stages > 1
    if spread:
        _keep_own_gpus(stages)
    with joined(order, local_rank=0 if spread else None) as ranks:
        device = describe(ranks.device, replica_of(order, ranks.rank))
        if spread:
            every = (describe(torch.device("cuda", index), 0).uuid for index in range(stages))
            device = replace(device, uuids=tuple(uuid for uuid in every if uuid is not None))
        yield ranks, device


@contextmanager
def prepare(order: WorkOrder, ranks: TorchRanks) -> Iterator[Session]:
    """Load the model."""
    settings, architecture = order.settings, order.architecture
    if isinstance(settings, Evaluate) and architecture is not None:
        session = evaluations(settings, architecture, ranks)
    else:
        session = generations(*generation_of(order), ranks)
    yield with_own_memory(session, visible_devices(ranks.device))


def _keep_own_gpus(stages: int) -> None:
    """Leave only this process's group visible, before CUDA starts: ``device_map`` takes all that it sees."""
    rank = rank_numbers().local_rank
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(visible[rank * stages : (rank + 1) * stages])
