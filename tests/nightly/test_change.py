"""Changes of all rows of two runs together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pybench.model.figures import FigureKey
from pybench.nightly.change import Sides, changes_of
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("nightly.change")

SPEED, ENERGY = "output_tokens_per_s", "energy_j_per_output_token"
SMALLEST = {SPEED: 0.01, ENERGY: 0.01}


def sides(change: float, sd: float) -> Sides:
    """Three attempts of each run, whose mean of logarithms differs by ``change``."""
    steps = (0.0, sd, -sd)
    return Sides(tuple(math.exp(change + s) for s in steps), (tuple(math.exp(s) for s in steps),))


@pytest.mark.parametrize(("metric", "sign"), [(SPEED, 1), (ENERGY, -1)])
def test_a_change_that_one_of_many_rows_shows_by_chance_is_undecided(metric: str, sign: int) -> None:
    """By hand: sd 0.01 sqrt(2/3), four degrees: 3.444 % less is 3.0 of it beyond 1 %, P = 2 %; 20 % less is P = 1e-5.

    Holm's limit for the least likely of three rows is 5 / 3 %, for the next row 2.5 %.
    """
    worse, much_worse, better = (sides(sign * change, 0.01) for change in (-0.03444, -0.2, 0.03444))
    alone = changes_of({FigureKey("a", metric): worse}, SMALLEST)
    assert [change.verdict for change in alone.values()] == ["differs"]
    equal = {FigureKey("equal", metric): sides(0.0, 0.01)}
    among = changes_of({**equal, FigureKey("a", metric): worse, FigureKey("b", metric): better}, SMALLEST)
    for name, verdict in (("a", "regressed"), ("b", "improved")):
        change = among[FigureKey(name, metric)]
        assert (change.verdict, change.reason) == ("undecided", f"{verdict} by itself, but not yet sure among 3 rows")
    beside = changes_of({**equal, FigureKey("a", metric): worse, FigureKey("b", metric): much_worse}, SMALLEST)
    assert [beside[FigureKey(name, metric)].verdict for name in "ab"] == ["differs", "differs"]


def runs_of(num_attempts: int, *means: float) -> tuple[tuple[float, ...], ...]:
    """Runs of an even number of attempts, each 1 % above or below its run's mean of logarithms."""
    return tuple(tuple(math.exp(m + s) for s in (-0.01, 0.01) * (num_attempts // 2)) for m in means)


def test_fewer_attempts_than_the_references_have_widen_the_interval() -> None:
    """By hand: the references differ by 1 % (four attempts, two degrees, 1e-4 (1 + 1/3)), this run has two attempts.

    Between attempts: 14 squares of 0.01 over 10 degrees, 1.4e-4, of which (1/2 - 1/4) is added. The sum, 1.683e-4, has
    3.145 degrees (Welch-Satterthwaite), of which t(2.5 %) is 3.1013. A run with the same number of attempts, or more,
    widens nothing.
    """
    (now,) = runs_of(2, -0.03)
    (change,) = changes_of({FigureKey("a", SPEED): Sides(now, runs_of(4, -0.01, 0.0, 0.01))}, SMALLEST).values()
    assert change.high == pytest.approx(math.exp(-0.03 + 3.1013 * math.sqrt(1.68333e-4)) - 1, abs=1e-5)
    for num in (4, 6):
        (now,) = runs_of(num, -0.03)
        (change,) = changes_of({FigureKey("a", SPEED): Sides(now, runs_of(4, -0.01, 0.0, 0.01))}, SMALLEST).values()
        assert change.high == pytest.approx(math.exp(-0.03 + 4.3027 * 0.01 * math.sqrt(4 / 3)) - 1, abs=1e-5)


def test_one_attempt_decides_nothing_against_several_references() -> None:
    """Half the speed is still one value of unknown scatter. References of one attempt each show by each other."""
    one, two = (0.5,), (0.5, 0.5005)
    references = ((1.0, 1.001), (1.001, 1.002), (0.999, 1.0))
    (change,) = changes_of({FigureKey("a", SPEED): Sides(one, references)}, SMALLEST).values()
    assert (change.verdict, change.reason) == ("undecided", SENTENCES["one_attempt_decides_nothing_against"])
    (change,) = changes_of({FigureKey("a", SPEED): Sides(two, tuple(run[:1] for run in references))}, SMALLEST).values()
    assert change.verdict == "regressed"


@pytest.mark.no_cover
def test_equal_runs_with_fewer_attempts_than_their_references_rarely_have_a_regressed_row() -> None:
    """Twenty rows, six references of five attempts 2 % apart, two attempts now: 8 % where these counted as five do."""
    random = np.random.default_rng(32)

    def attempts(num: int) -> tuple[float, ...]:
        return tuple(np.exp(0.02 * random.standard_normal(num)))

    regressed = 0
    for _ in range(150):
        rows = {FigureKey(f"{n}", SPEED): Sides(attempts(2), tuple(attempts(5) for _ in range(6))) for n in range(20)}
        regressed += any(change.verdict == "regressed" for change in changes_of(rows, SMALLEST).values())
    assert regressed <= 4


@pytest.mark.no_cover
def test_equal_runs_of_many_rows_rarely_have_a_regressed_one() -> None:
    """Forty rows, attempts differ by 0.3 to 2 %: 2 % of 75 pairs, and three standard deviations.

    If each row was judged by itself it was 18 %.
    """
    random = np.random.default_rng(31)

    def attempts(sd: float) -> tuple[float, ...]:
        return tuple(np.exp(sd * random.standard_normal(3)))

    regressed = 0
    for _ in range(75):
        spreads = np.exp(random.uniform(math.log(0.003), math.log(0.02), 40))
        rows = {FigureKey(f"{place}", SPEED): Sides(attempts(sd), (attempts(sd),)) for place, sd in enumerate(spreads)}
        regressed += any(change.verdict == "differs" for change in changes_of(rows, SMALLEST).values())
    assert regressed <= 5
