"""Readings of the energy counter: what each shows of the time at which a value was published."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from pybench.power.energy.times import Column, seconds_since
from pybench.power.trace import CounterColumns


@dataclass(frozen=True)
class Readings:
    """Each value was taken at some moment between ``before_s`` and ``after_s``. Values never fall."""

    before_s: Column
    after_s: Column
    energy_mj: npt.NDArray[np.int64]

    @classmethod
    def of(cls, counter: CounterColumns, origin_ns: int) -> Self:
        """All readings in the order they were made, but for lone wrong ones; times are seconds since ``origin_ns``."""
        # int64 holds 292 years of a kilowatt in mJ, and differences stay signed.
        energy_mj = np.asarray(counter.energy_mj, dtype=np.uint64).astype(np.int64)
        kept = ~_lone(energy_mj)
        before_s, after_s = seconds_since(counter.before_ns, origin_ns), seconds_since(counter.after_ns, origin_ns)
        if kept.all():
            return cls(before_s, after_s, energy_mj)
        return cls(before_s[kept], after_s[kept], energy_mj[kept])

    def keep(self, which: npt.NDArray[np.bool_]) -> Readings:
        """Only the readings that are marked."""
        return Readings(self.before_s[which], self.after_s[which], self.energy_mj[which])

    def near(self, start_s: float, end_s: float) -> Readings:
        """The readings made between two times."""
        first = int(np.searchsorted(self.after_s, start_s))
        end = int(np.searchsorted(self.before_s, end_s, side="right"))
        return Readings(self.before_s[first:end], self.after_s[first:end], self.energy_mj[first:end])

    def beginning(self, length_s: float) -> Readings:
        """The readings made within so long after the first, in whole ns since that: the same for every origin."""
        if not len(self.before_s):
            return self
        first_s = float(self.before_s[0])
        part = self.near(-np.inf, first_s + length_s)
        before_s, after_s = (np.rint((time_s - first_s) * 1e9) / 1e9 for time_s in (part.before_s, part.after_s))
        return Readings(before_s, after_s, part.energy_mj)

    def without_resets(self, start_s: float, end_s: float) -> Readings | None:
        """The unbroken run around a window; ``None`` when the counter fell inside it."""
        falls = np.flatnonzero(self.energy_mj[1:] < self.energy_mj[:-1])
        if not len(falls):
            return self
        if np.any((self.after_s[falls + 1] >= start_s) & (self.before_s[falls] <= end_s)):
            return None
        begun = falls[self.after_s[falls + 1] < start_s]
        ended = falls[self.before_s[falls] > end_s]
        order = np.arange(len(self.energy_mj))
        first = begun[-1] + 1 if len(begun) else 0
        last = ended[0] if len(ended) else len(order)
        return self.keep((order >= first) & (order <= last))

    @cached_property
    def firsts(self) -> npt.NDArray[np.intp]:
        """Index of each reading that was the first to see its value: equal values follow each other."""
        return np.concatenate(([0], self.changes)) if len(self.energy_mj) else self.changes

    @cached_property
    def changes(self) -> npt.NDArray[np.intp]:
        """Index of each reading that was the first to see its value, but for the first of all."""
        return np.flatnonzero(self.energy_mj[1:] != self.energy_mj[:-1]) + 1

    @cached_property
    def brackets(self) -> tuple[Column, Column]:
        """Earliest and latest moment at which each new value can have been published."""
        return self.before_s[self.changes - 1], self.after_s[self.changes]

    @cached_property
    def quiet_spans(self) -> tuple[Column, Column]:
        """Start and end of each span in which nothing can have been published: the value was seen at both ends."""
        first = self.firsts
        last = np.concatenate((self.changes - 1, [len(self.energy_mj) - 1]))
        start_s, end_s = self.after_s[first], self.before_s[last]
        long = end_s > start_s
        return start_s[long], end_s[long]


def _lone(energy_mj: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which values fall out of an order that both their neighbours keep: errors of the driver, no resets."""
    wrong = np.zeros(len(energy_mj), dtype=bool)
    last, own, following = energy_mj[:-2], energy_mj[1:-1], energy_mj[2:]
    wrong[1:-1] = (last <= following) & ((own < last) | (own > following))
    return wrong
