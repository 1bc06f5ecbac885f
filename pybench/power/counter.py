"""The energy counter: its readings, and anchors: the moments at which its sum is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pybench.power.samples import Column, seconds_since
from pybench.power.trace import CounterColumns

# Standard deviation in s of a publication's time about its grid. On eight H200s half of all publications were within
# 0.14 ms, one in twenty 1.5 to 4 ms away.
PUBLICATION_BLUR_S = 0.6e-3
# Longest period of publication in s; known boards publish every 20 to 100 ms.
LONGEST_PERIOD_S = 0.5


@dataclass(frozen=True)
class Readings:
    """Readings of the counter. Each value was taken at some moment between ``before_s`` and ``after_s``."""

    before_s: Column
    after_s: Column
    energy_mj: npt.NDArray[np.int64]

    @classmethod
    def of(cls, counter: CounterColumns, origin_ns: int) -> Readings:
        """All readings except lone wrong ones, in seconds since ``origin_ns``.

        A value out of an order that both its neighbours keep is a driver error.
        """
        # int64 holds 292 years of a kilowatt in mJ, and differences stay signed.
        energy_mj = np.asarray(counter.energy_mj, dtype=np.uint64).astype(np.int64)
        wrong = np.zeros(len(energy_mj), dtype=bool)
        last, value, following = energy_mj[:-2], energy_mj[1:-1], energy_mj[2:]
        wrong[1:-1] = (last <= following) & ((value < last) | (value > following))
        before_s, after_s = seconds_since(counter.before_ns, origin_ns), seconds_since(counter.after_ns, origin_ns)
        return cls(before_s, after_s, energy_mj).keep(~wrong) if wrong.any() else cls(before_s, after_s, energy_mj)

    def keep(self, which: npt.NDArray[np.bool_] | slice) -> Readings:
        """The marked readings."""
        return Readings(self.before_s[which], self.after_s[which], self.energy_mj[which])

    def near(self, start_s: float, end_s: float) -> Readings:
        """Readings made between two times."""
        first = int(np.searchsorted(self.after_s, start_s))
        return self.keep(slice(first, int(np.searchsorted(self.before_s, end_s, side="right"))))

    def beginning(self, length_s: float) -> Readings:
        """Readings within ``length_s`` of the first, in whole ns since it: equal whatever the origin."""
        if not len(self.before_s):
            return self
        first_s = float(self.before_s[0])
        part = self.near(-np.inf, first_s + length_s)
        before_s, after_s = (np.rint((time_s - first_s) * 1e9) / 1e9 for time_s in (part.before_s, part.after_s))
        return Readings(before_s, after_s, part.energy_mj)

    def without_resets(self, start_s: float, end_s: float) -> Readings | None:
        """The run of readings around a window without a fall; ``None`` if the counter fell within the window."""
        falls = np.flatnonzero(self.energy_mj[1:] < self.energy_mj[:-1])
        if not len(falls):
            return self
        if np.any((self.after_s[falls + 1] >= start_s) & (self.before_s[falls] <= end_s)):
            return None
        earlier = falls[self.after_s[falls + 1] < start_s]
        later = falls[self.before_s[falls] > end_s]
        first = earlier[-1] + 1 if len(earlier) else 0
        return self.keep(slice(int(first), int(later[0]) + 1 if len(later) else None))

    @cached_property
    def firsts(self) -> npt.NDArray[np.intp]:
        """Index of the first reading of each value; equal values are adjacent."""
        return np.concatenate(([0], self.changes)) if len(self.energy_mj) else self.changes

    @cached_property
    def changes(self) -> npt.NDArray[np.intp]:
        """Index of the first reading of each value but the first."""
        return np.flatnonzero(self.energy_mj[1:] != self.energy_mj[:-1]) + 1

    @cached_property
    def brackets(self) -> tuple[Column, Column]:
        """Earliest and latest moment of each new value's publication."""
        return self.before_s[self.changes - 1], self.after_s[self.changes]

    @cached_property
    def quiet_spans(self) -> tuple[Column, Column]:
        """Start and end of each span without a publication: both ends saw one value."""
        first = self.firsts
        last = np.concatenate((self.changes - 1, [len(self.energy_mj) - 1]))
        start_s, end_s = self.after_s[first], self.before_s[last]
        long = end_s > start_s
        return start_s[long], end_s[long]

    @property
    def longest_period_s(self) -> float:
        """Upper limit of the publication period, by the two closest publications."""
        low_s, high_s = self.brackets
        return float(np.min(high_s[1:] - low_s[:-1], initial=LONGEST_PERIOD_S))


def joined(parts: Sequence[Readings]) -> Readings:
    """Readings of several parts in their order."""
    columns = zip(*((part.before_s, part.after_s, part.energy_mj) for part in parts), strict=True)
    return Readings(*(np.concatenate(column) for column in columns))


@dataclass(frozen=True)
class Anchors:
    """The counter's sum ``energy_j`` at ``time_s``, before the sensor's lag.

    ``blur_s`` is the standard deviation of each time, without an error common to all.
    """

    time_s: Column
    energy_j: Column
    blur_s: Column

    def keep(self, which: npt.NDArray[np.bool_]) -> Anchors:
        """The marked anchors."""
        return Anchors(self.time_s[which], self.energy_j[which], self.blur_s[which])

    def unevenness(self) -> float:
        """Sum of changes of the log mean power between intervals; miscounted publications make it large."""
        power_w = np.diff(self.energy_j) / np.diff(self.time_s)
        return float(np.sum(np.abs(np.diff(np.log(np.maximum(power_w, 1e-9))))))


def without_grid(readings: Readings) -> Anchors:
    """Each new value in the middle of its bracket, which is at most one publication period before the reading."""
    low_s, high_s = readings.brackets
    low_s = np.maximum(low_s, readings.before_s[readings.changes] - readings.longest_period_s)
    energy_j = readings.energy_mj[readings.changes] / 1e3
    return Anchors((low_s + high_s) / 2, energy_j, (high_s - low_s) / np.sqrt(12))
