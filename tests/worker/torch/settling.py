"""One of two gloo ranks that try a batch size; rank 1's allocator settles later. Started by torchrun."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import distributed

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train import training as train_step
from pybench.worker.backends.torch.train.learner import Task

distributed.init_process_group("gloo")
rank = distributed.get_rank()
cached = ("abbbbbbbbb", "abcddddddd")[rank]
steps: list[str] = []


class Attempt:
    """Steps in which all ranks take part."""

    def step(self, index: int) -> None:
        """The allocator's state after the step is this letter."""
        distributed.barrier()
        steps.append(cached[index])


@contextmanager
def trainer(_task: Task) -> Iterator[Attempt]:
    """A try of any size."""
    yield Attempt()


patch = pytest.MonkeyPatch()
patch.setattr(train_step, "trainer", trainer)
patch.setattr(train_step, "cached_memory", lambda _device: steps[-1])
settings = Train(backend="torch", model="m", batch_size_per_gpu=1, sequence_tokens=4, data_parallel=2)
train_step._try(Task(settings, {}, TorchRanks(rank, 2, torch.device("cpu"))))
Path(f"{sys.argv[1]}.{rank}").write_text("".join(steps))
distributed.barrier()
os._exit(0)
