"""The processes that take turns together: who trains, how they wait for each other, what memory they see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import distributed

from pybench.model.wire import Span
from pybench.worker.backends.common_torch.memory import allocator_peak_bytes
from pybench.worker.backends.turn.engine import Engine
from pybench.worker.backends.turn.memory import PeakMemory
from pybench.worker.gpus import used_bytes

Reading = Callable[[], int | None]


@dataclass(frozen=True)
class Meters:
    """Functions that read a rank's memory, in bytes; ``wait`` returns once its device is done.

    ``end_phase`` is called behind each phase, outside its time.
    """

    wait: Callable[[], None]
    device_bytes: Reading
    host_bytes: Reading
    end_phase: Callable[[], None]


class Recorder:
    """Phases begin at a barrier over all ranks, and end on each rank when its device is done."""

    def __init__(self, barrier: Callable[[], None], meters: Meters) -> None:
        self._barrier = barrier
        self._meters = meters
        self.spans: list[Span] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record one phase. One that raises leaves none."""
        self._barrier()
        start_ns = time.monotonic_ns()
        yield
        self._meters.wait()
        end_ns = time.monotonic_ns()
        self._barrier()  # a rank with nothing to do would read what the others still hold
        self.spans.append(
            Span(
                name=name,
                start_ns=start_ns,
                end_ns=end_ns,
                device_bytes=self._meters.device_bytes(),
                host_bytes=self._meters.host_bytes(),
            )
        )
        self._meters.end_phase()

    def seconds(self, name: str) -> float:
        """Length of all phases of a name on this rank so far."""
        return sum(span.end_ns - span.start_ns for span in self.spans if span.name == name) / 1e9


_PAGE_BYTES = 4096
_PROC = Path("/proc")


class Party:
    """One rank's view. ``gpu_uuids`` are the GPUs whose memory it watches; ``trains`` is whether it has a trainer.

    Ranks wait for each other in host memory: one that waited on its GPU would keep it from working for the others.
    """

    def __init__(
        self, rank: int, world_size: int, device: torch.device, gpu_uuids: Sequence[str] = (), *, trains: bool = True
    ) -> None:
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self.trains = trains
        self._gpu_uuids = tuple(gpu_uuids)
        self._group = distributed.new_group(backend="gloo") if world_size > 1 else None

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for this rank's device, then for all ranks."""
        self._wait()
        if self._group is not None:
            distributed.barrier(self._group)

    def broadcast(self, message: str | None) -> str:
        """Rank 0's message, on every rank."""
        if self._group is not None:
            listed = [message]
            distributed.broadcast_object_list(listed, src=0, group=self._group)
            message = listed[0]
        return cast("str", message)

    def shared(self, sequences: torch.Tensor | None, shape: tuple[int, int]) -> torch.Tensor:
        """Rank 0's sequences on every rank, on the CPU."""
        if self._group is None:
            assert sequences is not None
            return sequences
        found = torch.empty(shape, dtype=torch.long) if sequences is None else sequences.contiguous()
        distributed.broadcast(found, src=0, group=self._group)
        return found

    def joined(self, own: dict[str, bytes]) -> dict[str, bytes]:
        """What every rank has, in one."""
        if self._group is None:
            return own
        found: list[dict[str, bytes]] = [{} for _ in range(self.world_size)]
        distributed.all_gather_object(found, own, group=self._group)
        return {name: value for each in found for name, value in each.items()}

    def meters(self, engine: Engine | None, peak: PeakMemory) -> Meters:
        """Memory that this rank can read, its engine's included."""
        return Meters(
            wait=self._wait,
            device_bytes=lambda: self._device_bytes(engine),
            host_bytes=lambda: self._host_bytes(engine),
            end_phase=peak.end_phase,
        )

    def own_bytes(self) -> int:
        """The most that this process alone has taken."""
        if self.device.type == "cuda":
            return allocator_peak_bytes(self.device)[1]
        return _resident_bytes("self")

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _device_bytes(self, engine: Engine | None) -> int | None:
        if self.device.type == "cuda":
            return max((used_bytes(uuid) for uuid in self._gpu_uuids), default=None)
        pids = engine.device_pids() if engine is not None else ()
        return _resident_bytes("self") + sum(_resident_bytes(str(pid)) for pid in pids)

    def _host_bytes(self, engine: Engine | None) -> int:
        own = pinned_bytes() if self.device.type == "cuda" else 0
        return own + (engine.host_bytes() if engine is not None else 0)


def pinned_bytes() -> int:
    """Pinned host memory of this process, as torch's allocator rounds it; what it keeps for later counts, too."""
    return int(torch.cuda.host_memory_stats().get("allocated_bytes.current", 0))


def _resident_bytes(pid: str) -> int:
    """Resident memory of a process on this machine, 0 of one that has ended."""
    try:
        return int((_PROC / pid / "statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
