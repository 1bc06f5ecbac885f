"""The ways to write a trainer's state to files, and to read it back into the trainer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import distributed
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor

from pybench.model.workloads.checkpoint import Checkpoint
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.turn.checks import digest
from pybench.worker.imports import needs_package

State = dict[str, torch.Tensor]
"""Tensors by name, each rank's own part where they are split; loading writes into them."""


def state_of(settings: Checkpoint, model: Any, optimizer: torch.optim.Optimizer) -> State:
    """State of a model and its optimizer, by the names of the model without DDP's wrapper."""
    named = list(getattr(model, "module", model).named_parameters())
    kept = {name: weight for name, weight in named if settings.contents != "adapters" or weight.requires_grad}
    found = {f"model.{name}": weight.detach() for name, weight in kept.items()}
    if settings.contents == "trainer":
        found.update(_optimizer_states(named, optimizer))
    return found


def _optimizer_states(named: Any, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
    for name, weight in named:
        for key, value in optimizer.state.get(weight, {}).items():
            if isinstance(value, torch.Tensor):
                yield f"optimizer.{name}.{key}", value


def num_bytes(state: State) -> int:
    """Bytes of all whole tensors; a split tensor counts once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def digests(state: State) -> dict[str, int]:
    """A number for the bits of this rank's part of each tensor."""
    return {name: digest(local(tensor)) for name, tensor in state.items()}


@torch.no_grad()
def overwrite(state: State) -> None:
    """Overwrite every number with -1, counters and weights alike: no trainer has this value."""
    for tensor in state.values():
        local(tensor).fill_(-1)


_FILE = "trainer"


class Files(Protocol):
    """One format. Every rank calls both together."""

    def save(self, state: State, folder: Path) -> None:
        """Write and flush to the device (fsync) all files below ``folder``."""

    def load(self, state: State, folder: Path) -> None:
        """Read the files into the tensors of ``state``."""


def files_of(file_format: str, ranks: TorchRanks) -> Files:
    """By the name that the settings have."""
    return Sharded() if file_format == "sharded" else Whole(file_format, ranks)


class Sharded:
    """torch.distributed.checkpoint: every rank writes its own part, equal tensors of several ranks once."""

    def save(self, state: State, folder: Path) -> None:
        """A file for each rank, and one that describes them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about a lone rank, which it is right about
            save(dict(state), storage_writer=FileSystemWriter(folder, sync_files=True))
        flush(folder)

    def load(self, state: State, folder: Path) -> None:
        """In place, each rank what it holds."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # as above
            load(dict(state), storage_reader=FileSystemReader(folder))


class Whole:
    """One file by rank 0, which gathers every tensor in host memory first."""

    def __init__(self, file_format: str, ranks: TorchRanks) -> None:
        self._ranks = ranks
        self._safetensors = file_format == "safetensors"
        if self._safetensors:
            with needs_package("file_format = 'safetensors'", "torch"):
                import safetensors.torch  # noqa: F401 - a missing package is reported before anything is measured

    @torch.no_grad()
    def save(self, state: State, folder: Path) -> None:
        """Gather, write, flush."""
        gathered = {}
        for name, tensor in state.items():
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if self._ranks.rank == 0:
                gathered[name] = whole.cpu()
        if self._ranks.rank == 0:
            self._write(gathered, folder / _FILE)
            flush(folder / _FILE)
            flush(folder)

    @torch.no_grad()
    def load(self, state: State, folder: Path) -> None:
        """Rank 0 reads and hands out."""
        found = self._read(folder / _FILE) if self._ranks.rank == 0 else {}
        for name, tensor in state.items():
            whole = found.pop(name).to(tensor.device) if self._ranks.rank == 0 else torch.empty_like(_plain(tensor))
            if isinstance(tensor, DTensor):
                tensor.copy_(distribute_tensor(whole, tensor.device_mesh, tensor.placements))
                continue
            tensor.copy_(whole)
            if self._ranks.world_size > 1:
                _broadcast(tensor, self._ranks.device)

    def _write(self, gathered: State, path: Path) -> None:
        if self._safetensors:
            from safetensors.torch import save_file

            save_file({name: tensor.contiguous() for name, tensor in gathered.items()}, path)
        else:
            torch.save(gathered, path)

    def _read(self, path: Path) -> State:
        if self._safetensors:
            from safetensors.torch import load_file

            return load_file(path)
        found: State = torch.load(path, map_location="cpu", weights_only=True)
        return found


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """An empty tensor of the whole shape where ``tensor`` is split, else itself."""
    if not isinstance(tensor, DTensor):
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _broadcast(tensor: torch.Tensor, device: torch.device) -> None:
    """From rank 0; a counter in host memory goes by way of the device."""
    there = tensor.to(device)
    distributed.broadcast(there, src=0)
    tensor.copy_(there)


def flush(path: Path) -> None:
    """Wait until a file, or a folder's names, are on their device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
