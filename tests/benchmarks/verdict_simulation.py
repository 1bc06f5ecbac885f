"""Simulated runs with known truth, decided as a run decides them: attempts are added while a row is open."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pybench.core.statistics.contrast import contrast
from pybench.core.statistics.false_discovery import sure
from pybench.core.statistics.memory import ATTEMPTS_OF_FEW
from pybench.core.statistics.spread import common_spread
from pybench.core.verdict import MODERATED_FAIL, MODERATED_PASS, RowStatistics, level_of
from pybench.model.suite import Effort
from pybench.model.verdict import Decision

FIRST, LAST = 3, 6
MOST = ATTEMPTS_OF_FEW
"""Attempts of a row whose fail fewer do not confirm."""

Logs = list[list[float]]
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]


@dataclass(frozen=True)
class Outcome:
    """Of one simulated run: rows that pass and fail, and the mean attempts of a point."""

    passed: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    attempts: float


def attempt_medians(
    random: np.random.Generator, truths: Sequence[float], sds: Sequence[float], *, within: float = 0.0, bad: float = 0.0
) -> Logs:
    """``MOST`` logarithms of medians of 5 steps for each point; a share ``bad`` is slower by 5 % on average."""
    found = []
    for truth, sd in zip(truths, sds, strict=True):
        runs = truth + sd * random.standard_normal(MOST)
        steps = runs[:, None] + within * random.standard_normal((MOST, 5))
        slower = (random.random(MOST) < bad) * random.exponential(0.05, MOST)
        found.append((np.median(steps, axis=1) - slower).tolist())
    return found


def decide(
    values: Logs,
    rows: Sequence[tuple[int, int | None]],
    limits: Sequence[float],
    sensors: float = 0.0,
    usual_correlation: float = 0.0,
) -> Outcome:
    """Rows are a point over a baseline, or a point alone; each must be at least its limit, in logarithms.

    ``sensors`` is the standard deviation of what ``values`` have of power sensors, in all attempts alike.
    ``usual_correlation`` is that of the metric in other runs.
    """
    taken = [FIRST] * len(values)
    while True:
        decisions = look(
            [own[:n] for own, n in zip(values, taken, strict=True)], rows, limits, sensors, usual_correlation
        )
        passed = np.array([decision.p_pass <= decision.pass_level for decision in decisions])
        fails = sure({place: decision.p_fail / decision.fail_level for place, decision in enumerate(decisions)})
        failed = np.isin(np.arange(len(decisions)), [*fails]) & ~passed
        undecided = [
            (row, MOST if decision.is_unconfirmed else LAST)
            for row, decision, done in zip(rows, decisions, passed | failed, strict=True)
            if not done
        ]
        more = {point for row, most in undecided for point in row if point is not None and taken[point] < most}
        if not more:
            return Outcome(passed, failed, float(np.mean(taken)))
        for point in more:
            taken[point] += 1


def look(
    values: Logs,
    rows: Sequence[tuple[int, int | None]],
    limits: Sequence[float],
    sensors: float = 0.0,
    usual_correlation: float = 0.0,
) -> list[Decision]:
    """One look at all rows."""
    spread = common_spread(
        values, more_follow=all(len(own) < LAST for own in values), usual_correlation=usual_correlation
    )
    is_shared = spread is not None and spread.num_points > 0
    decisions = []
    for (point, baseline), limit in zip(rows, limits, strict=True):
        level = level_of([Effort(attempts=FIRST, max_attempts=LAST)] * (1 if baseline is None else 2))
        below = [] if baseline is None else [values[baseline]]
        fails_by = contrast([values[point]], below, spread.of_a_fail, sensors) if spread else None
        evidence = RowStatistics(
            interval=(1.0, None, None),
            contrast=contrast([values[point]], below, spread, sensors),
            fails_by=fails_by,
            passes_by=fails_by if spread and spread.is_unseen else None,
            num_points=0 if spread is None or spread.is_unseen else len(values),
            pass_level=level * MODERATED_PASS if is_shared else level,
            fail_level=level * MODERATED_FAIL if is_shared else level,
        )
        decisions.append(evidence.decide(math.exp(limit), None))
    return decisions


def _noise(sd: float) -> Draw:
    return lambda random, num: sd * random.standard_normal((num, MOST))


def _two_speeds(share: float) -> Draw:
    """Noise of 0.2 %, and a ``share`` of attempts slower by 3.1 %, as of equal runs on an H100."""
    return lambda random, num: (
        0.002 * random.standard_normal((num, MOST)) - 0.031 * (random.random((num, MOST)) < share)
    )


def _correlated(correlation: float) -> Draw:
    """Noise of 1 %, an AR(1) process of a point's attempts."""

    def draw(random: np.random.Generator, num: int) -> NDArray[np.float64]:
        values = random.standard_normal((num, MOST))
        for attempt in range(1, MOST):
            fresh = math.sqrt(1 - correlation**2) * values[:, attempt]
            values[:, attempt] = correlation * values[:, attempt - 1] + fresh
        return 0.01 * values

    return draw


def _in_time(correlation: float) -> Draw:
    """Noise of 1 %, an AR(1) process of the machine from one measurement to the next; odd rounds run backwards."""

    def draw(random: np.random.Generator, num: int) -> NDArray[np.float64]:
        order = np.arange(MOST * num).reshape(MOST, num)
        order[1::2] = order[1::2, ::-1]
        noise = random.standard_normal(MOST * num)
        for place in range(1, MOST * num):
            noise[place] = correlation * noise[place - 1] + math.sqrt(1 - correlation**2) * noise[place]
        return 0.01 * noise[order].T

    return draw


def _ramp(random: np.random.Generator, num: int) -> NDArray[np.float64]:
    """Noise of 1 %, and clocks that fall by 2 % in the first ``LAST`` rounds of a run; odd rounds backwards."""
    place = (np.arange(num) / num)[:, None]
    rounds = np.arange(MOST)
    return 0.01 * random.standard_normal((num, MOST)) - 0.02 / LAST * (rounds + abs(rounds % 2 - place))


def _unequal(random: np.random.Generator, num: int) -> NDArray[np.float64]:
    sds = np.exp(random.uniform(math.log(0.003), math.log(0.02), (num, 1)))
    return sds * random.standard_normal((num, MOST))


JOULES = "joules, correlation 0.6"
ATTEMPTS: dict[str, Draw] = {
    "normal, 1 %": _noise(0.01),
    "normal, points from 0.3 to 2 %": _unequal,
    "heavy tails (t, 3 degrees)": lambda random, num: 0.01 * random.standard_t(3, (num, MOST)),
    "2 % bad, slower by 5 % on average": lambda random, num: (
        0.01 * random.standard_normal((num, MOST))
        - (random.random((num, MOST)) < 0.02) * random.exponential(0.05, (num, MOST))
    ),
    "1 in 20 slower by 3.1 %": _two_speeds(0.05),
    "1 in 5 slower by 3.1 %": _two_speeds(0.2),
    "two equally frequent speeds": _two_speeds(0.5),
    "clocks fall by 2 %": _ramp,
    "the machine remembers, correlation 0.3": _in_time(0.3),
    "the machine remembers, correlation 0.6": _in_time(0.6),
    "the machine remembers, correlation 0.9": _in_time(0.9),
    "each point by itself remembers, correlation 0.3": _correlated(0.3),
    "each point by itself remembers, correlation 0.6": _correlated(0.6),
    JOULES: _correlated(0.6),
}
"""Logarithms of ``MOST`` attempts of so many points, by what disturbs them."""


def one_baseline(
    random: np.random.Generator,
    attempts: Draw,
    num_rows: int,
    margins: Sequence[float] | None = None,
    usual_correlation: float = 0.0,
) -> Outcome:
    """``num_rows`` points over one baseline, whose truths lie ``margins`` above their limits (at them by default)."""
    values = attempts(random, num_rows + 1)
    values[1:] += np.reshape(margins or [0.0] * num_rows, (num_rows, 1))
    rows: list[tuple[int, int | None]] = [(1 + row, 0) for row in range(num_rows)]
    return decide(values.tolist(), rows, [0.0] * num_rows, usual_correlation=usual_correlation)


FAMILY = [(6 + index, index // 5) for index in range(30)]
"""Six baselines, each with five counts."""


def family(random: np.random.Generator, margins: Sequence[float], *, bad: float = 0.0) -> Outcome:
    """30 rows whose truths lie ``margins`` above their limits; points' sds from 0.3 to 2 %."""
    sds = np.exp(random.uniform(math.log(0.003), math.log(0.02), 36)).tolist()
    values = attempt_medians(random, [0.0] * 6 + list(margins), sds, bad=bad)
    return decide(values, FAMILY, [0.0] * 30)
