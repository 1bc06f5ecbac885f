"""Location, intervals and outliers of attempts and their steps."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pybench.core.statistics.interval import (
    Interval,
    NoRatioError,
    Samples,
    estimate,
    location,
    outlying_attempts,
    quotient,
)
from pybench.model.workloads.settings import LARGEST


def _noisy(random: np.random.Generator, truth: float, num_attempts: int) -> Samples:
    """Attempts with 1 % spread between runs and 0.5 % between steps."""
    runs = truth * (1 + 0.01 * random.standard_normal(num_attempts))
    return [(run * (1 + 0.005 * random.standard_normal(5))).tolist() for run in runs]


def test_location_is_the_geometric_mean_of_the_attempts_medians() -> None:
    """Medians 2 and 8: 4; a straggler step of 90 moves neither. So throughput times step time is the work."""
    assert location([[1.0, 2.0, 90.0], [7.0, 9.0]]) == pytest.approx(4.0)
    assert location([[1 / 2.0], [1 / 8.0]]) == pytest.approx(1 / 4.0)


def test_values_that_are_not_positive_have_an_arithmetic_mean() -> None:
    """Zero has no logarithm."""
    assert location([[0.0], [3.0]]) == 1.5


def test_an_interval_by_hand() -> None:
    """Logarithms of 100, 102, 104: s = 0.0196105, over sqrt(3) and times t(2) = 4.30265: 4.87 % each way."""
    value, low, high = estimate([[100.0], [102.0], [104.0]])
    reach = 4.30265 * 0.0196105 / 3**0.5
    assert value == pytest.approx((100 * 102 * 104) ** (1 / 3))
    assert (low, high) == pytest.approx((value / math.exp(reach), value * math.exp(reach)), rel=1e-6)


def test_a_ratio_by_hand() -> None:
    """Welch: 3 attempts with s 0.02 over 3 without any have the freedom of the first alone, t(2)."""
    value, low, high = quotient([[[math.exp(x)] for x in (-0.02, 0.0, 0.02)]], [[[0.5]] * 3])
    reach = 4.30265 * 0.02 / 3**0.5
    assert value == pytest.approx(2.0)
    assert (low, high) == pytest.approx((2 / math.exp(reach), 2 * math.exp(reach)), rel=1e-6)


def test_what_is_systematic_widens_a_ratio() -> None:
    """Equal attempts over boards whose gains differ by 2 %: 1.96 x 2 % each way."""
    value, low, high = quotient([[[6.0]] * 3], [[[3.0]] * 3], systematic_sd=0.02)
    assert value == 2.0
    assert (low, high) == pytest.approx((2 / math.exp(0.0392), 2 * math.exp(0.0392)), rel=1e-4)


def test_two_attempts_near_zero_have_an_interval_of_their_size() -> None:
    """Fractions of 0.05 and 1.2 %: by logarithms 4e-12 to 1.4e6; plain, to 0.625 % and t(1) = 12.7062 times 0.575 %."""
    value, low, high = estimate([[0.0005], [0.012]])
    assert value == pytest.approx(0.00245, rel=1e-2)
    assert high == pytest.approx(0.00625 + 12.7062 * 0.00575, rel=1e-4)
    assert low == 0


@pytest.mark.parametrize("of", ["ratio", "value"])
def test_what_is_systematic_never_narrows_an_interval(of: str) -> None:
    """Three attempts that scatter by 17 % show what they show, however well known a doubt of 5 or 10 % is.

    By Satterthwaite's degrees of freedom alone the ratio's [0.77, 1.78] became [0.84, 1.64] and [0.85, 1.61].
    """
    scattered, steady = [[100.0], [140.0], [115.0]], [[100.0], [101.0], [99.5]]
    sds = (0.0, 0.05, 0.1, 0.3)
    found = [quotient([scattered], [steady], sd) if of == "ratio" else estimate(scattered, sd) for sd in sds]
    widths = [math.log(high / low) for _, low, high in found if low and high]
    assert len(widths) == len(sds)
    assert widths == sorted(widths)


def test_steps_of_a_fixed_pattern_are_no_noise() -> None:
    """A fourth step that is slow in every attempt leaves the spread between attempts, here none."""
    pattern = [133.0, 133.0, 133.0, 160.0, 138.0]
    assert estimate([pattern] * 4) == (133.0, 133.0, 133.0)


def test_one_attempt_has_no_interval() -> None:
    """Steps of one process say nothing about the next process."""
    assert estimate([[1.0, 2.0, 3.0]]) == (2.0, None, None)
    assert quotient([[[4.0]]], [[[2.0], [2.0]]]) == (2.0, None, None)
    assert quotient([[[4.0], [4.0]]], [[[2.0]]]) == (2.0, None, None)


@pytest.mark.parametrize("num_attempts", [2, 3, 5, 30])
def test_equal_steps_give_an_interval_without_width(num_attempts: int) -> None:
    """No spread in, no spread out, by every route through the formula."""
    assert estimate([[3.0, 3.0]] * num_attempts) == (3.0, 3.0, 3.0)
    assert quotient([[[6.0]] * num_attempts], [[[3.0]] * num_attempts]) == (2.0, 2.0, 2.0)


def test_attempts_without_steps_do_not_count() -> None:
    """One attempt with steps is one attempt, whatever else ended early."""
    assert estimate([[], [5.0]]) == (5.0, None, None)


def test_no_step_at_all_is_refused() -> None:
    """There is no value to give."""
    with pytest.raises(ValueError, match="no step was measured"):
        estimate([[], []])


def test_zero_baseline_is_refused() -> None:
    """A ratio to nothing is no number."""
    for baseline in ([[0.0]], [[-1.0], [1.0]]):
        with pytest.raises(NoRatioError, match=r"a ratio needs positive values, found (0|-1) in an attempt"):
            quotient([[[1.0]]], [baseline])


def test_same_samples_give_the_same_interval() -> None:
    """A rebuilt report must not differ from the first."""
    samples = _noisy(np.random.default_rng(0), 100, 4)
    assert estimate(samples) == estimate(samples)


def test_interval_holds_the_value_and_stays_positive() -> None:
    """Two wild attempts are wide, but a throughput is never below zero."""
    value, low, high = estimate([[1.0, 1.1], [3.0, 3.2]])
    assert low is not None
    assert high is not None
    assert 0 <= low < value < high


def test_a_step_that_is_zero_is_no_trouble() -> None:
    """Zero has no logarithm; the interval is then a plain one."""
    value, low, high = estimate([[0.0], [0.2]])
    assert value == pytest.approx(0.1)
    assert low is not None
    assert high is not None
    assert low < 0.1 < high


@pytest.mark.parametrize(
    "samples",
    [[[1e60], [1e-300]], [[1e-300], [1e60]], [[1e60], [1e-60]], [[1e60, 1e60], [1.0]], [[5e-324], [5e-324]]],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_what_no_attempts_can_measure_has_finite_figures(samples: Samples) -> None:
    """A journal that was edited holds any number up to the largest that is read; their quotient has no limit."""
    figures = [location(samples), *estimate(samples)]
    for below in (samples, [[1e-59], [1e-59]]):
        try:
            figures += [*quotient([samples], [below]), *quotient([samples, samples], [below, below])]
        except NoRatioError:
            assert min(map(min, samples)) < 1 / LARGEST
    assert all(abs(figure) <= LARGEST for figure in figures if figure is not None)


def test_more_attempts_narrow_the_interval() -> None:
    """That is what adding attempts to an inconclusive verdict is for."""
    random = np.random.default_rng(5)
    widths = [
        np.mean([_width(estimate(_noisy(random, 100, num_attempts))) for _ in range(50)])
        for num_attempts in (2, 3, 6, 40)
    ]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.no_cover  # many draws of code that the tests above cover
@pytest.mark.parametrize(("between", "within"), [(0.003, 0.01), (0.01, 0.005), (0.02, 0.002)])
@pytest.mark.parametrize("num_attempts", [3, 6])
def test_intervals_cover_the_truth_as_often_as_they_say(num_attempts: int, between: float, within: float) -> None:
    """600 simulated runs: 95 % of intervals hold the truth, give or take 3 standard errors (2.7 %)."""
    random = np.random.default_rng(num_attempts)
    trials = 600
    held = held_ratio = 0
    for _ in range(trials):
        samples, baseline = (
            [
                np.exp(truth + between * random.standard_normal() + within * random.standard_normal(5)).tolist()
                for _ in range(num_attempts)
            ]
            for truth in (math.log(100), math.log(50))
        )
        held += _holds(estimate(samples), 100)
        held_ratio += _holds(quotient([samples], [baseline]), 2)
    assert 0.923 <= held / trials <= 0.985
    assert 0.923 <= held_ratio / trials <= 0.985


def _width(interval: Interval) -> float:
    _, low, high = interval
    assert low is not None
    assert high is not None
    return high - low


def _holds(interval: Interval, truth: float) -> bool:
    _, low, high = interval
    assert low is not None
    assert high is not None
    return low <= truth <= high


@pytest.mark.no_cover  # many draws of code that the tests above cover
@pytest.mark.parametrize("num_attempts", [4, 5, 6])
def test_clean_attempts_name_an_outlier_in_two_per_cent_of_runs_at_most(num_attempts: int) -> None:
    """Of 2,000 runs; two standard errors are 0.6 %."""
    random = np.random.default_rng(num_attempts)
    runs = np.exp(0.01 * random.standard_normal((2000, num_attempts)))
    flagged = sum(bool(outlying_attempts([[value] for value in run])) for run in runs.tolist())
    assert 5 <= flagged <= 0.026 * 2000


def test_an_attempt_far_off_is_named() -> None:
    """Medians 10.0, 10.1, 9.9, 10.0 and 20: only the last stands out."""
    assert outlying_attempts([[10.0], [10.1], [9.9], [10.0], [20.0]]) == (4,)


def test_three_attempts_name_no_outlier() -> None:
    """Of three, one is always farthest off."""
    assert outlying_attempts([[10.0], [10.1], [20.0]]) == ()


def test_equal_attempts_name_no_outlier() -> None:
    """Without spread there is no scale for a distance."""
    assert outlying_attempts([[10.0]] * 4) == ()
