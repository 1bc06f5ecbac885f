"""Weights on their way from the trainer to the engine."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

Named = tuple[str, torch.Tensor]

BUCKET_BYTES = 2**30
_ALIGNMENT = 256
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a file that vanishes with the turn, under a name of this process
_PREFIX = "pybench-handover-"
ADAPTER_FILE = "adapter_model.safetensors"


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in a bucket, from byte ``start``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class Bucket:
    """Several tensors in one, of bytes: one handle for all of them."""

    places: tuple[Place, ...]
    flat: torch.Tensor

    def tensors(self) -> Iterator[Named]:
        """The tensors, as views of the bucket's memory."""
        for place in self.places:
            dtype: torch.dtype = getattr(torch, place.dtype)
            size = torch.Size(place.shape).numel() * dtype.itemsize
            yield place.name, self.flat[place.start : place.start + size].view(dtype).view(place.shape)


def parts(weights: Iterable[Named], limit: int = BUCKET_BYTES) -> Iterator[list[Named]]:
    """The weights in lists of ``limit`` bytes at most; one that is larger has a list to itself."""
    held: list[Named] = []
    size = 0
    for name, tensor in weights:
        if held and size + tensor.nbytes > limit:
            yield held
            held, size = [], 0
        held.append((name, tensor))
        size += _aligned(tensor.nbytes)
    if held:
        yield held


def packed(tensors: list[Named]) -> Bucket:
    """Copies of the tensors, one behind the other."""
    places, start = [], 0
    for name, tensor in tensors:
        places.append(Place(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), start))
        start += _aligned(tensor.nbytes)
    bucket = Bucket(tuple(places), torch.empty(start, dtype=torch.uint8, device=tensors[0][1].device))
    for (_, source), (_, target) in zip(tensors, bucket.tensors(), strict=True):
        target.copy_(source)
    return bucket


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class HandoverFolder:
    """A folder for one file of weights, in shared memory where it has room, else in the working directory.

    Folders of processes that were killed are removed when the next one is made.
    """

    def __init__(self, num_bytes: int) -> None:
        _remove_stale(_MEMORY_FOLDER)
        in_memory = _MEMORY_FOLDER.is_dir() and shutil.disk_usage(_MEMORY_FOLDER).free > 2 * num_bytes
        parent = _MEMORY_FOLDER if in_memory else Path.cwd()
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))

    def write(self, weights: Iterable[Named], adapter: Mapping[str, object] | None) -> Path:
        """Write all weights to one file, with an adapter's config beside it in peft's form; returns the file."""
        host = {name: tensor.detach().cpu().contiguous() for name, tensor in weights}
        file = self.path / ("model.safetensors" if adapter is None else ADAPTER_FILE)
        save_file(host, file, metadata={"format": "pt"})
        if adapter is not None:
            (self.path / "adapter_config.json").write_text(json.dumps(adapter), encoding="utf-8")
        return file

    def remove(self) -> None:
        """Free the memory that the file takes."""
        shutil.rmtree(self.path, ignore_errors=True)


def read(file: Path, device: torch.device) -> list[Named]:
    """All weights of a file, on ``device``."""
    return list(load_file(file, device=str(device)).items())


def _remove_stale(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)
