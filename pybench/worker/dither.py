"""Pauses that break the step with a power sensor."""

from __future__ import annotations

_PARTS = 16
_PARTS_AHEAD = 3


class Dither:
    """Has steps begin at all phases of a sensor's sampling alike. Times are nanoseconds of one clock.

    The sampling period is taken in 16 parts. A step waits for the beginning of the next part but two at the most, if
    fewer steps have begun in it: so a pause is shorter than a fifth of the period, and a load in step with the sensor
    is paused for a sixteenth of the period on average. Pauses drawn at random need many times as long to come as near.
    """

    def __init__(self, period_ns: float) -> None:
        self._part_ns = period_ns / _PARTS
        self._begun = [0] * _PARTS

    def pause_ns(self, now_ns: int) -> float:
        """How long the step that could begin now is to wait."""
        here = now_ns // self._part_ns
        ahead = min(range(_PARTS_AHEAD + 1), key=lambda parts: self._begun[int(here + parts) % _PARTS])
        return (here + ahead) * self._part_ns - now_ns if ahead else 0.0

    def begun(self, start_ns: int) -> None:
        """A step did begin then."""
        self._begun[int(start_ns // self._part_ns) % _PARTS] += 1
