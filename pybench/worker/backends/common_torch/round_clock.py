"""When work of a device, such as each decode round, was done, without a wait between on a GPU."""

from __future__ import annotations

import time

import torch

_NS_PER_MS = 1e6


class RoundClock:
    """Marks rounds or other work; ``read`` waits for the last and gives CLOCK_MONOTONIC nanoseconds.

    A CPU has done the work when it comes to the mark.
    """

    def __init__(self) -> None:
        self._ends_ns: list[int] = []

    def mark(self) -> None:
        """Work was given to the device."""
        self._ends_ns.append(time.monotonic_ns())

    def read(self) -> tuple[int, ...]:
        """When the work before each mark was done."""
        return tuple(self._ends_ns)


class _EventClock(RoundClock):
    """CUDA events, anchored at the moment the host saw the last one done: the anchor is late by microseconds."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []

    def mark(self) -> None:
        self._events.append(timed_event())

    def read(self) -> tuple[int, ...]:
        if not self._events:
            return ()
        last = self._events[-1]
        last.synchronize()
        end_ns = time.monotonic_ns()
        return tuple(end_ns - round(event.elapsed_time(last) * _NS_PER_MS) for event in self._events)


def round_clock(device: torch.device) -> RoundClock:
    """A clock for rounds on ``device``."""
    return _EventClock() if device.type == "cuda" else RoundClock()


def timed_event() -> torch.cuda.Event:
    """An event with a time, behind all that the current stream was given so far."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
