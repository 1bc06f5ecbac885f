"""The most memory of a rank while engine and trainer take turns.

An engine that falls asleep in the trainer's process gives its memory back to the driver, while torch's allocator counts
it on: the two together would exceed the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from pybench.model.wire import Metric
from pybench.worker.backends.common_torch.memory import (
    allocator_peak_bytes,
    device_memory_used,
    memory_metrics,
    peak_metrics,
)


class Held(NamedTuple):
    """Bytes of an allocator: in tensors, and reserved from the driver."""

    allocated: int
    reserved: int

    def beside(self, other: Held) -> Held:
        """Both together."""
        return Held(self.allocated + other.allocated, self.reserved + other.reserved)

    def without(self, other: Held) -> Held:
        """The difference of the two."""
        return Held(self.allocated - other.allocated, self.reserved - other.reserved)


NOTHING = Held(0, 0)


class PeakMemory:
    """Peak bytes over all phases, less the bytes of ``asleep``, which the allocator counts without memory.

    Not known from the first phase on for which ``asleep`` gives ``None``.
    """

    def __init__(self, device: torch.device, asleep: Callable[[], Held | None]) -> None:
        self._device = device
        self._asleep = asleep
        self._before = NOTHING
        self._most: Held | None = NOTHING

    def end_phase(self) -> None:
        """Take the peak since the phase before; only the end of a phase in which the engine slept in or woke up."""
        if self._device.type == "cpu" or self._most is None:
            return
        asleep = self._asleep()
        if asleep is None:
            self._most = None
            return
        found = (Held(*allocator_peak_bytes(self._device)) if asleep == self._before else _now(self._device)).without(
            asleep
        )
        self._most = Held(*map(max, self._most, found))
        self._before = asleep
        torch.cuda.reset_peak_memory_stats(self._device)

    def metrics(self) -> tuple[Metric, ...]:
        """As :func:`memory_metrics` of other workloads."""
        if self._device.type == "cpu":
            return memory_metrics(self._device)
        peaks = () if self._most is None else peak_metrics(*self._most)
        return (*peaks, device_memory_used(self._device))


def _now(device: torch.device) -> Held:
    return Held(torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device))
