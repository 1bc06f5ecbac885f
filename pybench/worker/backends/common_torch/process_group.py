"""This rank's device, its way to the other ranks, and when the device has done its work."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from pybench.model.backend import BACKENDS, replica_of
from pybench.model.wire import WorkOrder
from pybench.model.workloads.settings import NodeSettings
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.common_torch.collective_watch import CollectiveWatch
from pybench.worker.exchange import Device, EventStream
from pybench.worker.gpus import nvml_uuid
from pybench.worker.ranks import Ranks, rank_numbers


def describe(device: torch.device, replica: int) -> Device:
    """Kind, name and UUID of ``device``, which works for replica ``replica``."""
    if device.type == "cpu":
        return Device("cpu", torch.backends.cpu.get_cpu_capability(), replica=replica)
    properties = torch.cuda.get_device_properties(device)
    return Device("cuda", properties.name, nvml_uuid(properties.uuid), replica=replica)


def _named(name: str, before: str) -> Callable[..., Any]:
    collective: Callable[..., Any] = getattr(distributed, name if hasattr(distributed, name) else before)
    return collective


all_gather = _named("all_gather_single", "all_gather_into_tensor")
reduce_scatter = _named("reduce_scatter_single", "reduce_scatter_tensor")


def wait_for(device: torch.device) -> None:
    """Return when ``device`` has done what this process gave it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# Time from the watch's limit to the library's own timeout, which does not name the collective that hangs.
_LATER_S = 60.0
# Length of torch's flight recorder in each rank: a step of a large model has hundreds of operations.
_RECORDED_OPERATIONS = "2000"


class TorchRanks(Ranks):
    """The ranks of a point and this rank's device; one rank needs no process group.

    ``has_nvls`` is whether NCCL found NVLink SHARP (multicast in NVSwitches), ``None`` where NCCL did not look for it.
    """

    has_nvls: bool | None = None

    def __init__(self, rank: int, world_size: int, device: torch.device, collective_timeout_s: float = 600.0) -> None:
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self._collective_timeout_s = collective_timeout_s

    def barrier(self) -> None:
        """Wait for this rank's device, then for all ranks."""
        wait_for(self.device)
        if self.world_size > 1:
            distributed.all_reduce(torch.zeros(1, device=self.device))
            wait_for(self.device)

    def agree(self, decision: bool) -> bool:
        """Rank 0's decision."""
        return self._decided(decision, partial(distributed.broadcast, src=0))

    def unanimous(self, here: bool) -> bool:
        """Whether it holds on every rank."""
        return self._decided(here, partial(distributed.all_reduce, op=distributed.ReduceOp.MIN))

    def _decided(self, here: bool, exchange: Callable[[torch.Tensor], object]) -> bool:
        if self.world_size == 1:
            return here
        flag = torch.tensor([int(here)], device=self.device)
        exchange(flag)
        return bool(flag.item())

    def watched(self, gpu: str, events: EventStream) -> AbstractContextManager[None]:
        """Return a context in which ranks report a wait beyond the limit and end; ``gpu`` is this rank's."""
        if self.world_size == 1:
            return nullcontext()
        return CollectiveWatch(self.rank, self.world_size, gpu, events, self._collective_timeout_s).running()


@contextmanager
def joined(order: WorkOrder, local_rank: int | None = None) -> Iterator[tuple[TorchRanks, Device]]:
    """Meet the other ranks, on the visible GPU ``local_rank``, which is this rank's own number unless given.

    Raises :class:`UnsupportedError` when ranks or devices don't fit the order.
    """
    numbers = rank_numbers()
    needed = BACKENDS[order.settings.backend].num_processes(order.settings)
    if numbers.world_size != needed:
        raise UnsupportedError(f"{order.point_id}: the settings need {needed} ranks, started were {numbers.world_size}")
    on_gpu = order.device != "cpu"
    if on_gpu:
        place = numbers.local_rank if local_rank is None else local_rank
        if place >= torch.cuda.device_count():
            raise UnsupportedError(f"rank {place} needs its own GPU; torch sees {torch.cuda.device_count()}")
        device = torch.device("cuda", place)
        torch.cuda.set_device(device)
    else:
        # One rank is one core unless the host sets another number, so that more ranks mean more compute.
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        device = torch.device("cpu")
    ranks = TorchRanks(numbers.rank, numbers.world_size, device, order.collective_timeout_s)
    if numbers.world_size > 1:
        library = "nccl" if on_gpu else "gloo"
        bound = device if on_gpu else None
        patience = timedelta(seconds=order.collective_timeout_s + _LATER_S)
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", _RECORDED_OPERATIONS)
        with _nccl_log(isinstance(order.settings, NodeSettings) and on_gpu) as log:
            distributed.init_process_group(library, timeout=patience, device_id=bound)
            ranks.has_nvls = nvls_of_log(log.read_text(errors="replace")) if log else None
    yield ranks, describe(device, replica_of(order.settings, ranks.rank))
    # gloo's own clean-up hung one run in ten, and the rank is about to leave through os._exit anyway.
    if numbers.world_size > 1 and on_gpu:
        distributed.destroy_process_group()


@contextmanager
def _nccl_log(wanted: bool) -> Iterator[Path | None]:
    """A file in the attempt's folder for NCCL's log, ``None`` where the user reads that log."""
    if not wanted or "NCCL_DEBUG" in os.environ:
        yield None
        return
    with tempfile.NamedTemporaryFile(prefix="nccl-", dir=Path.cwd()) as file:
        os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", "NCCL_DEBUG_FILE": file.name}
        yield Path(file.name)


def nvls_of_log(text: str) -> bool | None:
    """Whether NCCL's log states NVLS multicast as available; ``None`` if it does not name it.

    NCCL writes it for a communicator of two GPUs or more, unless ``NCCL_NVLS_ENABLE=0`` (NCCL, transport/nvls.cc).
    """
    line = re.search(r"NVLS multicast support is (not )?available", text)
    return None if line is None else line[1] is None


_NS_PER_MS = 1e6


class RoundClock:
    """Marks rounds or other work on ``device``; ``read`` waits for the last and gives CLOCK_MONOTONIC nanoseconds.

    A CPU has done the work when it comes to the mark. CUDA events are anchored at the moment the host saw the last one
    done: the anchor is late by microseconds.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Work was given to the device."""
        if not self._on_gpu:
            self._marks.append(time.monotonic_ns())
            return
        # An event with a time, behind all present work of the current stream.
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._marks.append(event)

    def read(self) -> tuple[int, ...]:
        """When the work before each mark was done."""
        if not self._on_gpu or not self._marks:
            return tuple(self._marks)
        last = self._marks[-1]
        last.synchronize()
        end_ns = time.monotonic_ns()
        return tuple(end_ns - round(event.elapsed_time(last) * _NS_PER_MS) for event in self._marks)
