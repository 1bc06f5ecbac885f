"""The checkpoint workload: save, load, compare."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, distribute_tensor

from pybench.model.text import abridged, amount_text
from pybench.model.wire import Metric, Span, Work
from pybench.model.workloads.checkpoint import CHECK, LOAD, SAVE, Checkpoint
from pybench.worker.backend import StepOutcome, UnsupportedError, WrongResultError
from pybench.worker.backends.common_torch.memory import memory_metrics
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Task, WholeModel, local, whole
from pybench.worker.backends.torch.train.training import trainer
from pybench.worker.backends.turn.delivery import digest
from pybench.worker.imports import needs_package
from pybench.worker.ranks import scratch_folder

State = dict[str, torch.Tensor]
"""Tensors by name, each rank's own part where they are split; loading writes into them."""


def state_of(settings: Checkpoint, model: Any, optimizer: torch.optim.Optimizer) -> State:
    """State of a model and its optimizer, by the names of the model without DDP's wrapper."""
    named = list(getattr(model, "module", model).named_parameters())
    kept = {name: weight for name, weight in named if settings.contents != "adapters" or weight.requires_grad}
    state = {f"model.{name}": weight.detach() for name, weight in kept.items()}
    if settings.contents == "trainer":
        for name, weight in named:
            values = optimizer.state.get(weight, {}).items()
            state |= {f"optimizer.{name}.{key}": value for key, value in values if isinstance(value, torch.Tensor)}
    return state


def num_bytes(state: State) -> int:
    """Bytes of all whole tensors; a split tensor counts once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())


def digests(state: State) -> dict[str, int]:
    """A number for the bits of this rank's part of each tensor."""
    return {name: digest(local(tensor)) for name, tensor in state.items()}


_FILE = "trainer"


class Sharded:
    """torch.distributed.checkpoint: every rank writes its own part, equal tensors of several ranks once.

    Every rank calls both functions together; saving ends when all files are on their device (fsync).
    """

    def save(self, state: State, folder: Path) -> None:
        """Write a file for each rank, and a file with their description."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about a lone rank, which it is right about
            save(dict(state), storage_writer=FileSystemWriter(folder, sync_files=True))
        flush(folder)

    def load(self, state: State, folder: Path) -> None:
        """Load in place; each rank loads its parts."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # as above
            load(dict(state), storage_reader=FileSystemReader(folder))


class Whole:
    """One file by rank 0, which gathers every tensor in host memory first."""

    def __init__(self, file_format: str, ranks: TorchRanks) -> None:
        self._ranks = ranks
        self._write: Callable[[State, Path], object] = torch.save
        self._read: Callable[[Path], State] = partial(torch.load, map_location="cpu", weights_only=True)
        if file_format == "safetensors":  # a missing package is reported before anything is measured
            with needs_package("file_format = 'safetensors'", "torch"):
                from safetensors.torch import load_file, save_file
            self._write, self._read = save_file, load_file

    @torch.no_grad()
    def save(self, state: State, folder: Path) -> None:
        """Gather, write, flush."""
        gathered = {}
        for name, tensor in state.items():
            gathered_tensor = whole(tensor)
            if self._ranks.rank == 0:
                gathered[name] = gathered_tensor.cpu().contiguous()  # as safetensors needs it
        if self._ranks.rank == 0:
            self._write(gathered, folder / _FILE)
            flush(folder / _FILE)
            flush(folder)

    @torch.no_grad()
    def load(self, state: State, folder: Path) -> None:
        """Rank 0 reads and hands out."""
        read = self._read(folder / _FILE) if self._ranks.rank == 0 else {}
        for name, tensor in state.items():
            value = (
                read.pop(name).to(tensor.device)
                if self._ranks.rank == 0
                else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            )
            if isinstance(tensor, DTensor):
                tensor.copy_(distribute_tensor(value, tensor.device_mesh, tensor.placements))
                continue
            tensor.copy_(value)
            if self._ranks.world_size > 1:
                there = tensor.to(self._ranks.device)  # a counter in host memory is copied through the device
                distributed.broadcast(there, src=0)
                tensor.copy_(there)


def flush(path: Path) -> None:
    """Wait until a file, or a folder's names, are on their device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Headers, names and alignment need room, too, and a disk should not be filled to its last block.
_MORE_FRACTION, _MORE_BYTES = 0.05, 64 * 2**20


def require_room(folder: Path, num_bytes: int, remedy: str) -> None:
    """Raise :class:`UnsupportedError` if the disk of ``folder`` has no room for a checkpoint of this size."""
    needed = int(num_bytes * (1 + _MORE_FRACTION)) + _MORE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UnsupportedError(
            f"{folder}: a checkpoint needs {amount_text(needed)}, {amount_text(free)} are free; nothing was written: "
            f"{remedy}"
        )


def files_in(folder: Path) -> list[Path]:
    """Every regular file below ``folder``."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def size_bytes(folder: Path) -> int:
    """Size of all files."""
    return sum(path.stat().st_size for path in files_in(folder))


def drop_page_cache(folder: Path) -> None:
    """Have the kernel let go of the files' pages, which are on disk by now; some file systems (tmpfs) keep them."""
    for path in files_in(folder):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def page_cache_fraction(folder: Path) -> float:
    """Share of the files' pages that are in memory: 1 is a warm load, 0 a cold one (mincore(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    resident = total = 0
    for path in files_in(folder):
        size = path.stat().st_size
        if not size:  # has no page, and can't be mapped
            continue
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped,
        ):
            vector = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            start = ctypes.c_char.from_buffer(mapped)
            try:
                if libc.mincore(ctypes.byref(start), ctypes.c_size_t(size), vector) != 0:
                    raise OSError(ctypes.get_errno(), "mincore failed", str(path))
            finally:
                del start
        resident += sum(byte & 1 for byte in bytes(vector))
        total += len(vector)
    return resident / total if total else 0.0


class Checkpoints:
    """A trainer's live ``state``, and the ``files`` that it is saved to, in a folder of their own."""

    def __init__(self, settings: Checkpoint, state: State, ranks: TorchRanks, folder: Path) -> None:
        require_room(
            folder, num_bytes(state), "free some, give --runs a folder on a larger disk, or save less (contents)"
        )
        self._settings = settings
        self.state = state
        self._ranks = ranks
        self._folder = folder
        form = settings.file_format
        self.files: Sharded | Whole = Sharded() if form == "sharded" else Whole(form, ranks)

    def step(self, index: int) -> StepOutcome:
        """Save, load and compare. Raises :class:`WrongResultError`, which names a tensor that came back otherwise."""
        folder = self._folder / f"step{index}"
        folder.mkdir(parents=True, exist_ok=True)
        before = digests(self.state)
        saved = self._timed(SAVE, lambda: self.files.save(self.state, folder))
        values: dict[str, float] = {}
        if self._ranks.rank == 0:  # the files between saving and loading; rank 0 does so for all
            if self._settings.drop_page_cache:
                drop_page_cache(folder)
            values = {"checkpoint_bytes": size_bytes(folder), "page_cache_fraction": page_cache_fraction(folder)}
        for tensor in self.state.values():
            local(tensor).fill_(-1)  # counters and weights alike: no trainer has this value
        loaded = self._timed(LOAD, lambda: self.files.load(self.state, folder))
        checked = self._timed(CHECK, lambda: self._compare(before))
        if self._ranks.rank == 0:
            shutil.rmtree(folder)
        self._ranks.barrier()
        return StepOutcome(work=Work(), values=values, spans=(saved, loaded, checked))

    def metrics(self) -> tuple[Metric, ...]:
        """Peak memory."""
        return memory_metrics(self._ranks.device)

    def _timed(self, phase: str, part: Callable[[], None]) -> Span:
        """Ranks begin it together, and it ends when all are done."""
        self._ranks.barrier()
        start_ns = time.monotonic_ns()
        part()
        self._ranks.barrier()
        return Span(name=phase, start_ns=start_ns, end_ns=time.monotonic_ns())

    def _compare(self, before: dict[str, int]) -> None:
        after = digests(self.state)
        wrong = [f"{name} (rank {self._ranks.rank})" for name, bits in before.items() if after[name] != bits]
        of_ranks = [wrong] * self._ranks.world_size
        if self._ranks.world_size > 1:  # every rank calls this, so that none leaves while others wait for it
            distributed.all_gather_object(of_ranks, wrong)
        if everywhere := [name for names in of_ranks for name in names]:
            form, named = self._settings.file_format, abridged(everywhere, 1)
            raise WrongResultError(f"checkpoint ({form}): {named} has other bits than were saved")


@contextmanager
def checkpoints(settings: Checkpoint, architecture: dict[str, Any], ranks: TorchRanks) -> Iterator[Checkpoints]:
    """A trainer after one step, which makes the optimizer's states; its checkpoints are removed in the end."""
    with trainer(Task(settings.training, architecture, ranks)) as made, scratch_folder("checkpoint") as folder:
        made.step(0)
        learner = made.learner
        assert isinstance(learner, WholeModel), "strategies with whole layers on each rank"
        yield Checkpoints(settings, state_of(settings, learner.model, learner.optimizer), ranks, folder)
