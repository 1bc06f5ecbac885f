"""How a sampler that pays for every read finds steps of the counter.

As csrc/step_search does, in a simulated time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

# As in csrc/step_search.cpp.
JITTER_S = 0.5e-3
SHORTEST_PERIOD_S = 5e-3
REFINE_ABOVE_PERIODS = 0.65
AMBIGUOUS_ABOVE_PERIODS = 0.8
LEAD_S = 6e-3
NARROW_S = 24e-3
PAUSE_S = 4e-3
LONG_PAUSE_S = 8e-3
MOST_DELAYS = 3

Span = tuple[float, float]
# Takes the time at which a read begins and gives the time at which it ended and the counter's value.
Read = Callable[[float], tuple[float, int]]


@dataclass
class PublicationGrid:
    """When the newest step was, and the period: each the earliest and the latest."""

    first_s: Span = (0.0, 0.0)
    since_first: int = 0
    step_s: Span | None = None
    period_s: Span | None = None

    def add_step(self, low_s: float, high_s: float) -> None:
        """A step came between these times; the first two follow on each other."""
        if self.step_s is None or self.period_s is None:
            if self.step_s is None:
                self.first_s = (low_s, high_s)
            else:
                self.since_first = 1
                shortest_s = max(low_s - self.step_s[1], SHORTEST_PERIOD_S)
                self.period_s = (shortest_s, max(high_s - self.step_s[0], SHORTEST_PERIOD_S))
            self.step_s = (low_s, high_s)
            return
        number = round((low_s + high_s - sum(self.step_s)) / sum(self.period_s))
        if number < 1 or high_s - low_s >= self.period_s[0]:
            return
        predicted = self._predicted(number)
        seen = max(low_s - JITTER_S, predicted[0]), min(high_s + JITTER_S, predicted[1])
        if seen[0] > seen[1]:
            self.step_s = self.period_s = None
            return
        self.since_first += number
        self.period_s = (
            max(self.period_s[0], (seen[0] - self.first_s[1]) / self.since_first),
            min(self.period_s[1], (seen[1] - self.first_s[0]) / self.since_first + 1e-9),
        )
        self.step_s = seen
        self.first_s = (
            max(self.first_s[0], seen[0] - self.since_first * self.period_s[1]),
            min(self.first_s[1], seen[1] - self.since_first * self.period_s[0]),
        )

    def next(self, after_s: float) -> Span | None:
        """The first step that can't come before a time; ``None`` where its neighbours could be mistaken for it."""
        if self.step_s is None or self.period_s is None:
            return None
        predicted = self._predicted(max(1, int(np.ceil((after_s - self.step_s[0]) / self.period_s[0]))))
        return predicted if predicted[1] - predicted[0] <= AMBIGUOUS_ABOVE_PERIODS * self.period_s[0] else None

    def predictable_until_s(self) -> float:
        """When a hunt should begin, or steps can no longer be foretold well."""
        if self.step_s is None or self.period_s is None:
            return np.inf
        spare_s = REFINE_ABOVE_PERIODS * self.period_s[0] - (self.step_s[1] - self.step_s[0])
        number = max(1, int(spare_s / (self.period_s[1] - self.period_s[0] + 1e-9)))
        return self._predicted(number)[0] - 2 * LEAD_S

    def _predicted(self, number: int) -> Span:
        assert self.step_s is not None
        assert self.period_s is not None
        return self.step_s[0] + number * self.period_s[0], self.step_s[1] + number * self.period_s[1]


@dataclass
class StepSearch:
    """Finds steps with few reads."""

    read: Read
    grid: PublicationGrid = field(default_factory=PublicationGrid)

    def find_grid(self, at_s: float) -> float:
        """Read on and on until two steps were seen; the time when done."""
        self.grid = PublicationGrid()
        pause_s, begun_s, (done_s, old) = LONG_PAUSE_S, at_s, self.read(at_s)
        while self.grid.period_s is None:
            before_s, begun_s = begun_s, done_s + pause_s
            done_s, new = self.read(begun_s)
            if new != old:
                self.grid.add_step(before_s, done_s)
                pause_s, old = PAUSE_S, new
        return done_s

    def catch(self, at_s: float) -> float:
        """Read on both sides of the first step after a moment; the time when done."""
        for num_delays in range(MOST_DELAYS + 1):
            lead_s = LEAD_S * 4**num_delays
            predicted = self.grid.next(at_s + lead_s)
            if predicted is None:
                return self.find_grid(at_s)
            begun_s = predicted[0] - lead_s
            at_s, old = self.read(begun_s)
            if at_s <= predicted[0]:
                return self._read_through(predicted, begun_s, at_s, old)
        return at_s

    def _read_through(self, predicted: Span, begun_s: float, done_s: float, old: int) -> float:
        until_s = predicted[1] + JITTER_S
        while done_s < until_s:
            before_s, begun_s = begun_s, done_s + PAUSE_S if predicted[1] - predicted[0] > NARROW_S else until_s
            done_s, new = self.read(begun_s)
            if new != old:
                self.grid.add_step(before_s, done_s)
                return done_s
        return self.find_grid(done_s)

    def keep(self, at_s: float, until_s: float, period_s: float) -> float:
        """Catch a step whenever the rhythm would else be lost, and each ``period_s``; the time when done."""
        while (due_s := min(self.grid.predictable_until_s(), at_s + period_s)) < until_s:
            at_s = self.catch(max(at_s, due_s))
        return at_s
