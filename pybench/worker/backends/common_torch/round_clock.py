"""When each decode round's tokens were ready, without a wait between rounds on a GPU."""

from __future__ import annotations

import time
from typing import Protocol

import torch

_NS_PER_MS = 1e6


class RoundClock(Protocol):
    """Marks rounds; ``read`` waits for the last and gives CLOCK_MONOTONIC nanoseconds."""

    def mark(self) -> None:
        """A round's work was given to the device."""

    def read(self) -> tuple[int, ...]:
        """When each round ended."""


class _HostClock:
    def __init__(self) -> None:
        self._ends_ns: list[int] = []

    def mark(self) -> None:
        self._ends_ns.append(time.monotonic_ns())

    def read(self) -> tuple[int, ...]:
        return tuple(self._ends_ns)


class _EventClock:
    """CUDA events, anchored at the moment the host saw the last one done: the anchor is late by microseconds."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []

    def mark(self) -> None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._events.append(event)

    def read(self) -> tuple[int, ...]:
        last = self._events[-1]
        last.synchronize()
        end_ns = time.monotonic_ns()
        return tuple(end_ns - round(event.elapsed_time(last) * _NS_PER_MS) for event in self._events)


def round_clock(device: torch.device) -> RoundClock:
    """A clock for rounds on ``device``."""
    return _EventClock() if device.type == "cuda" else _HostClock()
