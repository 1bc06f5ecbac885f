"""Whether verdicts keep their stated confidence: simulated runs with known truth, every goal beside what is found.

Noise is between attempts / within, in percent, log-normal. Run by ``make bench``; the fast tier holds a few
goals (``tests/core/test_verdict_errors.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pybench.core.measurements import CORRELATION_OF_ENERGY
from pybench.core.statistics.contrast import Contrast
from pybench.core.statistics.distributions import quantile
from pybench.core.statistics.interval import Interval, estimate, quotient
from tests.benchmarks.tables import write_table
from tests.benchmarks.verdict_simulation import (
    ATTEMPTS,
    JOULES,
    MOST,
    attempt_medians,
    decide,
    family,
    one_baseline,
)

NOISE = {"0.3/1": (0.003, 0.01), "1/0.5": (0.01, 0.005), "2/0.2": (0.02, 0.002)}
TRIALS, SUITES = 4000, 400
BEFORE = {
    "normal, 1 %": "3.2; 2",
    "normal, points from 0.3 to 2 %": "-; 6",
    "heavy tails (t, 3 degrees)": "2.0; -",
    "2 % bad, slower by 5 % on average": "2.2; -",
    "1 in 5 slower by 3.1 %": "0.7; 40",
    "two equally frequent speeds": "2.7; 50",
    "clocks fall by 2 %": "0.2; -",
    "each point by itself remembers, correlation 0.3": "7.7; -",
    "each point by itself remembers, correlation 0.6": "16.3; 71",
}
"""Any false fail at a620776e, on other simulations of these kinds."""
RUNS_OF_ROWS = {1: 1500, 6: 600, 12: 150, 30: 100}


def _report(benchmark: Any, capsys: pytest.CaptureFixture[str], rows: list[tuple[str, str, float]]) -> None:
    benchmark.extra_info["found"] = {name: value for name, _, value in rows}
    with capsys.disabled():
        print()
        for name, goal, value in rows:
            print(f"  {name:<58} goal {goal:>12}   found {value:6.2f}")


def _percent(happened: Sequence[Any]) -> float:
    return 100 * float(np.mean(happened))


def _holds(interval: Interval, truth: float) -> bool:
    _, low, high = interval
    return low is not None and high is not None and low <= truth <= high


@pytest.mark.parametrize("noise", NOISE)
def test_coverage(benchmark: Any, capsys: pytest.CaptureFixture[str], noise: str) -> None:
    """Of the 95 % intervals of a metric and of a speedup, 3 to 6 attempts; and a speedup's width over Welch's."""
    between, within = NOISE[noise]
    random = np.random.default_rng(1)

    def simulate() -> list[tuple[str, str, float]]:
        rows = []
        for num in (3, 4, 5, 6):
            held = held_ratio = 0
            widths = []
            for _ in range(TRIALS):
                top, base = attempt_medians(random, [0.0, 0.0], [between] * 2, within=within)
                samples, baseline = ([[math.exp(value)] for value in own[:num]] for own in (top, base))
                held += _holds(estimate(samples), 1.0)
                found = quotient([samples], [baseline])
                held_ratio += _holds(found, 1.0)
                widths.append(math.log((found[2] or 1) / (found[1] or 1)) / 2 / _welch(top[:num], base[:num]))
            name = f"{noise}, {num} attempts"
            rows.append((f"{name}: metric's interval covers, %", "94 to 98", 100 * held / TRIALS))
            rows.append((f"{name}: speedup's interval covers, %", "94 to 98", 100 * held_ratio / TRIALS))
            rows.append((f"{name}: width over Welch's", "<= 1.2", float(np.median(widths))))
        return rows

    _report(benchmark, capsys, benchmark.pedantic(simulate, rounds=1))


def _welch(top: list[float], base: list[float]) -> float:
    """Half the width of Welch's interval, written out."""
    terms = [float(np.var(values, ddof=1)) / len(values) for values in (top, base)]
    freedom = sum(terms) ** 2 / sum(term**2 / (len(v) - 1) for term, v in zip(terms, (top, base), strict=True))
    return quantile(0.025, freedom) * math.sqrt(sum(terms))


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("rows", [[(0, 1)], [(0, None)]], ids=["speedup", "metric"])
def test_one_row(
    benchmark: Any, capsys: pytest.CaptureFixture[str], noise: str, rows: list[tuple[int, int | None]]
) -> None:
    """Exactly at its limit, and 3 % below it, with looks at 3, 4, 5 and 6 attempts."""
    between, within = NOISE[noise]
    random = np.random.default_rng(2)

    def outcomes(truth: float) -> tuple[float, float]:
        found = [
            decide(attempt_medians(random, [truth, 0.0], [between] * 2, within=within), rows, [0.0])
            for _ in range(TRIALS)
        ]
        return _percent([one.passed[0] for one in found]), _percent([one.failed[0] for one in found])

    def simulate() -> list[tuple[str, str, float]]:
        passed, failed = outcomes(0.0)
        return [
            (f"{noise}: false pass at the limit, %", "<= 2.5", passed),
            (f"{noise}: false fail at the limit, %", "<= 2.5", failed),
            (f"{noise}: 3 % beyond the limit fails, %", ">= 95 (1/0.5)", outcomes(math.log(0.97))[1]),
        ]

    _report(benchmark, capsys, benchmark.pedantic(simulate, rounds=1))


def test_thirty_rows(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Points whose sds lie between 0.3 and 2 %; 2 % of attempts are bad."""
    random = np.random.default_rng(3)
    healthy, at_limit = [math.log(1.05)] * 30, [0.0] * 30
    one_slow = [*healthy[:7], math.log(0.97), *healthy[8:]]

    def simulate() -> list[tuple[str, str, float]]:
        limit = [family(random, at_limit) for _ in range(2 * SUITES)]
        clean = [family(random, healthy) for _ in range(SUITES)]
        bad = [family(random, healthy, bad=0.02) for _ in range(SUITES)]
        slow = [family(random, one_slow, bad=0.02) for _ in range(SUITES)]
        return [
            ("30 rows at their limits: any false fail, %", "<= 5", _percent([o.failed.any() for o in limit])),
            ("30 rows at their limits: a row's false pass, %", "<= 2.5", _percent([o.passed.mean() for o in limit])),
            ("30 rows, 5 % to spare: all pass, %", ">= 90", _percent([o.passed.all() for o in clean])),
            ("the same, 2 % bad attempts: all pass, %", ">= 90", _percent([o.passed.all() for o in bad])),
            ("the same: attempts a point", "<= 3.6", float(np.mean([o.attempts for o in bad]))),
            ("the same, one row 3 % beyond: it fails, %", "-", _percent([o.failed[7] for o in slow])),
        ]

    _report(benchmark, capsys, benchmark.pedantic(simulate, rounds=1))


@pytest.mark.timeout(3600)
def test_error_table(benchmark: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at their limits, by what disturbs attempts: any false fail, and a row's false pass; rewrites the page."""
    monkeypatch.setattr(Contrast, "attempts_to_decide", lambda *_: None)  # most of the time, and no part of a verdict

    def rates(name: str, num_rows: int) -> str:
        random, usual = np.random.default_rng(num_rows), CORRELATION_OF_ENERGY if name == JOULES else 0.0
        outcomes = [
            one_baseline(random, ATTEMPTS[name], num_rows, usual_correlation=usual)
            for _ in range(RUNS_OF_ROWS[num_rows])
        ]
        return (
            f"{_percent([o.failed.any() for o in outcomes]):.1f}; {_percent([o.passed.mean() for o in outcomes]):.1f}"
        )

    def simulate() -> list[list[str]]:
        return [[name, BEFORE.get(name, "-"), *(rates(name, num) for num in RUNS_OF_ROWS)] for name in ATTEMPTS]

    heads = [
        "attempts",
        "before: 1 row; 30 rows",
        *(f"{num_rows} rows" if num_rows > 1 else "1 row" for num_rows in RUNS_OF_ROWS),
    ]
    write_table("measuring.md", "verdict errors", [heads, *benchmark.pedantic(simulate, rounds=1)], capsys)


@pytest.mark.timeout(3600)
def test_power_table(benchmark: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is too slow among rows with 5 % to spare: how often it fails; rewrites the page."""
    monkeypatch.setattr(Contrast, "attempts_to_decide", lambda *_: None)

    def found(sd: float, num_rows: int, loss: float) -> str:
        random = np.random.default_rng(num_rows)
        margins = [math.log(1 - loss)] + [math.log(1.05)] * (num_rows - 1)
        runs = [
            one_baseline(random, lambda r, num: sd * r.standard_normal((num, MOST)), num_rows, margins)
            for _ in range(RUNS_OF_ROWS[num_rows])
        ]
        return f"{_percent([run.failed[0] for run in runs]):.0f}"

    def simulate() -> list[list[str]]:
        losses = (0.02, 0.03, 0.05)
        return [
            [f"{100 * sd:g} %", str(num), *(found(sd, num, loss) for loss in losses)]
            for sd in (0.005, 0.01)
            for num in RUNS_OF_ROWS
        ]

    heads = ["noise", "rows", "2 % too slow", "3 %", "5 %"]
    write_table("measuring.md", "verdict power", [heads, *benchmark.pedantic(simulate, rounds=1)], capsys)
