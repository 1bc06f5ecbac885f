"""One of several gloo ranks: saves and loads by each wanted way. Started by torchrun."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from pybench.model.workloads.checkpoint import Checkpoint
from pybench.worker.backend import WrongResultError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch import checkpoints as storage
from pybench.worker.backends.torch.checkpoints import checkpoints
from pybench.worker.ranks import place_scratch
from tests.worker.torch.train_ranks import TINY

_size_bytes = storage.size_bytes


def settings_of(spec: dict[str, Any]) -> Checkpoint:
    """Of a model that a CPU saves in milliseconds."""
    return Checkpoint(**{"backend": "torch", "model": "tiny", "dtype": "float32", **spec})


def spoiling(folder: Path) -> int:
    """Flip one bit in the middle of the largest file, as a disk might."""
    largest = max(storage.files_in(folder), key=lambda path: path.stat().st_size)
    found = bytearray(largest.read_bytes())
    found[len(found) // 2] ^= 1
    largest.write_bytes(found)
    return _size_bytes(folder)


def checkpointed(spec: dict[str, Any], ranks: TorchRanks) -> dict[str, Any]:
    """Values and phases of two steps, the second with a wrong bit on disk where that is wanted; or the error."""
    spec = dict(spec)
    spoiled = spec.pop("spoiled", False)
    with checkpoints(settings_of(spec), TINY, ranks) as work:
        first = work.step(0)
        found: dict[str, Any] = {"values": first.values, "phases": [span.name for span in first.spans]}
        if spoiled:
            storage.size_bytes = spoiling
            try:
                work.step(1)
            except (WrongResultError, RuntimeError) as error:
                found["error"] = f"{type(error).__name__}: {error}"
            storage.size_bytes = _size_bytes
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    place_scratch(Path(sys.argv[2]).parent)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    here = TorchRanks(rank, distributed.get_world_size(), torch.device("cpu"))
    found = [checkpointed(spec, here) for spec in json.loads(sys.argv[1])]
    Path(f"{sys.argv[2]}.{rank}").write_text(json.dumps(found))
    distributed.barrier()
    os._exit(0)
