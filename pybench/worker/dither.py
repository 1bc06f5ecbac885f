"""Pauses that break the step with a power sensor."""

from __future__ import annotations

_FEWEST_PARTS, _MOST_PARTS = 5, 16
_LONGEST_PAUSE_FRACTION = 0.2


class Dither:
    """Delays steps so that they start evenly spread over the sensor's sampling period. Times are ns of one clock.

    From the first step's beginning on, the sampling period is taken in 5 to 16 parts: as many as leave the fewest of
    ``num_steps`` steps over after whole sweeps. A step waits for the beginning of a part where fewer have begun, a
    fifth of the period at the most. A load in step with the sensor is paused for one part on average; pauses drawn at
    random need many times as long to come as near. Fewer than five steps can't sweep the period by such pauses.
    """

    def __init__(self, period_ns: float, num_steps: int) -> None:
        self._begun = [0] * _num_parts(num_steps)
        self._part_ns = period_ns / len(self._begun)
        self._longest_ns = period_ns * _LONGEST_PAUSE_FRACTION
        self._origin_ns: int | None = None

    def pause_ns(self, now_ns: int) -> float:
        """How long the step that could begin now is to wait."""
        if self._origin_ns is None:
            return 0.0
        now = (now_ns - self._origin_ns) / self._part_ns
        longest = self._longest_ns / self._part_ns
        # A part that begins just beyond the longest pause is nearly reached.
        waits = [min(ahead + 1 - now % 1, longest) for ahead in range(round(now % 1 + longest))]
        return min([0.0, *waits], key=lambda wait: self._drawback(now + wait)) * self._part_ns

    def begun(self, start_ns: int) -> None:
        """A step did begin then."""
        self._origin_ns = start_ns if self._origin_ns is None else self._origin_ns
        self._begun[round((start_ns - self._origin_ns) / self._part_ns) % len(self._begun)] += 1

    def _drawback(self, at: float) -> tuple[int, float]:
        """How many steps have begun where one that begins after so many parts would, and how far off that lies."""
        return self._begun[round(at) % len(self._begun)], round(abs(at - round(at)), 3)


def _num_parts(num_steps: int) -> int:
    """The finest division that leaves the fewest steps over."""
    if num_steps < _FEWEST_PARTS:
        return _FEWEST_PARTS
    return min(range(_MOST_PARTS, _FEWEST_PARTS - 1, -1), key=lambda parts: num_steps % parts)
