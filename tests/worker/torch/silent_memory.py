"""One of two gloo ranks in control steps; rank 1 runs out of memory in its second silent step. Started by torchrun."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import distributed

from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.training import control_metrics

distributed.init_process_group("gloo")
rank = distributed.get_rank()
steps: list[int] = []
ORDINARY, GATHERING = 3, 1


def train() -> None:
    """As if all gradients did not fit."""
    if rank == 1 and len(steps) == ORDINARY + GATHERING:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB")
    steps.append(rank)


found = control_metrics(train, nullcontext(), TorchRanks(rank, 2, torch.device("cpu")), ORDINARY)
Path(f"{sys.argv[1]}.{rank}").write_text(f"{len(steps)} {len(found)}")
distributed.barrier()
os._exit(0)
