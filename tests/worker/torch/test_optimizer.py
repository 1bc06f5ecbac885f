"""The optimizer's share of the host."""

from __future__ import annotations

import os

import pytest
import torch

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Task, learner_of
from pybench.worker.backends.torch.train.strategies import ddp


@pytest.mark.parametrize(("offloaded", "nodes", "num_threads"), [(True, 1, 4), (True, 2, 8), (False, 1, 1)])
def test_an_update_in_host_memory_has_all_cores(
    monkeypatch: pytest.MonkeyPatch, offloaded: bool, nodes: int, num_threads: int
) -> None:
    """Eight cores, two ranks, on one host or on two; torchrun leaves each rank one thread."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    built: list[int] = []
    monkeypatch.setattr(ddp, "learner", lambda _task: built.append(torch.get_num_threads()))
    settings = Train(
        backend="torch",
        model="m",
        strategy="ddp",
        sequence_tokens=4,
        batch_size_per_gpu=1,
        data_parallel=2,
        nodes=nodes,
        cpu_offload=offloaded,
    )
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        learner_of(Task(settings, {}, TorchRanks(0, 2, torch.device("cpu"))))
    finally:
        torch.set_num_threads(before)
    assert built == [num_threads]
