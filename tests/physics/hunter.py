"""How a sampler that pays for every read finds steps of the counter: csrc/rhythm and csrc/hunt in a simulated time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

# As in csrc/rhythm.h and csrc/hunt.h.
JITTER_S = 0.5e-3
PAUSE_S = 4e-3
LEAD_S = 6e-3
NARROW_S = 12e-3
HORIZON_PERIODS = 0.3
MOST_MISSES = 3

Span = tuple[float, float]
# Takes the time at which a read begins and gives the time at which it ended and the counter's value.
Read = Callable[[float], tuple[float, int]]


@dataclass
class Rhythm:
    """When the last step was, and the period: each the earliest and the latest."""

    step_s: Span | None = None
    period_s: Span | None = None

    def saw(self, low_s: float, high_s: float) -> None:
        """A step came between these times."""
        if self.step_s is None or self.period_s is None:
            if self.step_s is not None:
                self.period_s = (low_s - self.step_s[1], high_s - self.step_s[0])
            self.step_s = (low_s, high_s)
            return
        number = round((low_s + high_s - sum(self.step_s)) / sum(self.period_s))
        if number < 1:
            return
        told = self._told(number)
        seen = max(low_s - JITTER_S, told[0]), min(high_s + JITTER_S, told[1])
        if seen[0] > seen[1]:
            self.step_s, self.period_s = (low_s, high_s), None
            return
        self.period_s = (
            max(self.period_s[0], (seen[0] - self.step_s[1]) / number),
            min(self.period_s[1], (seen[1] - self.step_s[0]) / number),
        )
        self.step_s = seen

    def next(self, after_s: float) -> Span | None:
        """The first step that can't come before ``after_s``; ``None`` where it can't be told from its neighbours."""
        if self.step_s is None or self.period_s is None:
            return None
        number = max(1, int(np.ceil((after_s - self.step_s[0]) / self.period_s[0])))
        low_s, high_s = self._told(number)
        return (low_s, high_s) if high_s - low_s < self.period_s[0] / 2 else None

    def horizon_s(self) -> float:
        """Until when steps can be foretold."""
        assert self.step_s is not None
        assert self.period_s is not None
        doubt_s = self.period_s[1] - self.period_s[0] + 1e-9
        spare_s = HORIZON_PERIODS * self.period_s[0] - (self.step_s[1] - self.step_s[0])
        return self.step_s[0] + max(1.0, spare_s / doubt_s) * self.period_s[0]

    def _told(self, number: int) -> Span:
        assert self.step_s is not None
        assert self.period_s is not None
        return self.step_s[0] + number * self.period_s[0], self.step_s[1] + number * self.period_s[1]


@dataclass
class Hunter:
    """Finds steps with few reads."""

    read: Read
    rhythm: Rhythm = field(default_factory=Rhythm)

    def learn(self, at_s: float) -> float:
        """Read without a long pause until two steps were seen; the time when done."""
        self.rhythm = Rhythm()
        while self.rhythm.period_s is None:
            at_s = self._catch_by_reading_on(at_s)
        return at_s

    def catch(self, at_s: float) -> float:
        """Read on both sides of the first step after a moment; the time when done."""
        for _ in range(MOST_MISSES):
            told = self.rhythm.next(at_s + LEAD_S)
            if told is None:
                break
            low_s, high_s = told
            if high_s - low_s > NARROW_S:
                return self._catch_by_reading_on(low_s - LEAD_S, high_s + LEAD_S)
            begun_s = low_s - LEAD_S
            done_s, old = self.read(begun_s)
            at_s, new = self.read(max(high_s + JITTER_S, done_s))
            if new != old:
                self.rhythm.saw(begun_s, at_s)
                return at_s
        return self.learn(at_s)

    def keep_until(self, at_s: float, until_s: float, period_s: float) -> float:
        """Catch a step whenever the rhythm would else be lost, and each ``period_s``."""
        while (due_s := min(self.rhythm.horizon_s(), at_s + period_s)) < until_s:
            at_s = self.catch(max(at_s, due_s))
        return at_s

    def _catch_by_reading_on(self, at_s: float, until_s: float = np.inf) -> float:
        begun_s, (done_s, old) = at_s, self.read(at_s)
        while done_s < until_s:
            before_s, begun_s = begun_s, done_s + PAUSE_S
            done_s, new = self.read(begun_s)
            if new != old:
                self.rhythm.saw(before_s, done_s)
                return done_s
        return self.learn(done_s)
