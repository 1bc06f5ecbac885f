"""Location, intervals and outliers of attempts and their steps."""

from __future__ import annotations

import numpy as np
import pytest

from pybench.compute.stats import Samples, estimate, location, outlying_attempts, ratio


def _noisy(random: np.random.Generator, truth: float, num_attempts: int) -> Samples:
    """Attempts with 1 % spread between runs and 0.5 % between steps."""
    runs = truth * (1 + 0.01 * random.standard_normal(num_attempts))
    return [(run * (1 + 0.005 * random.standard_normal(5))).tolist() for run in runs]


def test_location_is_the_mean_of_the_attempts_medians() -> None:
    """Medians 2 and 5; a straggler step of 90 moves neither."""
    assert location([[1.0, 2.0, 90.0], [4.0, 6.0]]) == 3.5


def test_one_attempt_has_no_interval() -> None:
    """Steps of one process say nothing about the next process."""
    assert estimate([[1.0, 2.0, 3.0]]) == (2.0, None, None)
    assert ratio([[4.0]], [[2.0], [2.0]]) == (2.0, None, None)
    assert ratio([[4.0], [4.0]], [[2.0]]) == (2.0, None, None)


@pytest.mark.parametrize("num_attempts", [2, 3, 5, 30])
def test_equal_steps_give_an_interval_without_width(num_attempts: int) -> None:
    """No spread in, no spread out, by every route through the formula."""
    assert estimate([[3.0, 3.0]] * num_attempts) == pytest.approx((3.0, 3.0, 3.0))
    assert ratio([[6.0]] * num_attempts, [[3.0]] * num_attempts) == pytest.approx((2.0, 2.0, 2.0))


def test_attempts_without_steps_do_not_count() -> None:
    """One attempt with steps is one attempt, whatever else ended early."""
    assert estimate([[], [5.0]]) == (5.0, None, None)


def test_no_step_at_all_is_refused() -> None:
    """There is no value to give."""
    with pytest.raises(ValueError, match="no step was measured"):
        estimate([[], []])


def test_zero_baseline_is_refused() -> None:
    """A ratio to nothing is no number."""
    with pytest.raises(ValueError, match=r"a ratio needs a positive baseline, found 0\.0"):
        ratio([[1.0]], [[0.0]])


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


def test_more_attempts_narrow_the_interval() -> None:
    """That is what adding attempts to an inconclusive verdict is for."""
    random = np.random.default_rng(5)
    widths = []
    for num_attempts in (2, 3, 6, 40):
        _, low, high = estimate(_noisy(random, 100, num_attempts))
        assert low is not None
        assert high is not None
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("num_attempts", [3, 4, 5, 6])
def test_interval_covers_the_truth_as_often_as_it_says(num_attempts: int) -> None:
    """Simulated runs with known truth: 95 % intervals of few attempts hold it in at least 93 %."""
    random = np.random.default_rng(num_attempts)
    trials = 400
    held = held_ratio = 0
    for _ in range(trials):
        samples, baseline = _noisy(random, 100, num_attempts), _noisy(random, 50, num_attempts)
        _, low, high = estimate(samples)
        _, ratio_low, ratio_high = ratio(samples, baseline)
        assert low is not None
        assert high is not None
        assert ratio_low is not None
        assert ratio_high is not None
        held += low <= 100 <= high
        held_ratio += ratio_low <= 2 <= ratio_high
    assert held / trials >= 0.93
    assert held_ratio / trials >= 0.93


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 9])
def test_medians_are_drawn_as_resampling_would(num_steps: int) -> None:
    """The direct draw of a resampled median has the mean and spread of the long way round."""
    from pybench.compute.stats import _resampled  # noqa: PLC0415 - a test may look inside

    random = np.random.default_rng(7)
    steps = random.exponential(size=num_steps)
    long_way = np.median(steps[random.integers(num_steps, size=(40_000, num_steps))], axis=1)
    drawn = _resampled([steps.tolist()], 1)
    assert drawn.mean() == pytest.approx(long_way.mean(), abs=0.03)
    assert drawn.std() == pytest.approx(long_way.std(), abs=0.03)


def test_an_attempt_far_off_is_named() -> None:
    """Medians 10.0, 10.1, 9.9, 10.0 and 20: only the last stands out."""
    assert outlying_attempts([[10.0], [10.1], [9.9], [10.0], [20.0]]) == (4,)


def test_three_attempts_name_no_outlier() -> None:
    """Of three, one is always farthest off."""
    assert outlying_attempts([[10.0], [10.1], [20.0]]) == ()


def test_equal_attempts_name_no_outlier() -> None:
    """Without spread there is no scale to be far off on."""
    assert outlying_attempts([[10.0]] * 4) == ()
