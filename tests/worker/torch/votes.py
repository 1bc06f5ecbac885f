"""One of two gloo ranks that look for a batch size; rank 1 has less memory. Started by torchrun."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from torch import distributed

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.training import find_batch_size

distributed.init_process_group("gloo")
rank = distributed.get_rank()
most = (9, 5)[rank]


def attempt(task: Task) -> None:
    """As if samples beyond ``most`` did not fit."""
    if task.settings.micro_batch_size > most:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB")


settings = Train(backend="torch", model="m", batch_size_per_gpu="auto", sequence_tokens=4, data_parallel=2)
found = find_batch_size(settings, {}, TorchRanks(rank, 2, torch.device("cpu")), attempt)
Path(f"{sys.argv[1]}.{rank}").write_text(str(found))
distributed.barrier()
os._exit(0)
