"""How long this rank's device computes within a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pybench.worker.backends.common_torch.round_clock import round_clock

_NS_PER_S = 1e9


class BusyTime:
    """Adds up the parts of a step in which the device computes. Parts do not overlap.

    On a GPU the computing stream is timed: it waits for what others send before a part begins.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._clock = round_clock(device)

    @contextmanager
    def part(self) -> Iterator[None]:
        """Around one part."""
        self._clock.mark()
        yield
        self._clock.mark()

    def taken_s(self) -> float:
        """Of all parts since it was last read. The device must be done with them."""
        marks_ns = self._clock.read()
        self._clock = round_clock(self._device)
        return sum(end - begin for begin, end in zip(marks_ns[::2], marks_ns[1::2], strict=True)) / _NS_PER_S
