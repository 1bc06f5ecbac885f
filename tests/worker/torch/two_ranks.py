"""One of two gloo ranks: saves logits for test_torch_parallel.py to compare. Started by torchrun."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.torch.tensor_parallel import Shard

CPU = torch.device("cpu")
shapes, tokens, out = json.loads(sys.argv[1]), torch.tensor(json.loads(sys.argv[2])), Path(sys.argv[3])
distributed.init_process_group("gloo")
rank = distributed.get_rank()
shard = Shard.over_all_ranks(CPU, 2)


def logits(shape: dict[str, Any], seed: int) -> torch.Tensor:
    """Logits of the split model; ranks that disagree on the seed hold halves of two different models."""
    model: Any = build_model(shape, torch.float32, CPU, seed, shard).eval()
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=tokens).logits
    return found


saved: dict[str, Any] = {
    "split": {name: logits(shape, 0) for name, shape in shapes.items()},
    "broken": {name: logits(shape, rank) for name, shape in shapes.items()},
}
if rank == 0:
    torch.save(saved, out)
distributed.barrier()
os._exit(0)
