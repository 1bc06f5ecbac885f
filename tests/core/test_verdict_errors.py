"""Verdicts keep their stated confidence: a few of the benchmark's goals, small enough for every run of the tests."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.benchmarks.verdict_simulation import ATTEMPTS, attempt_medians, decide, family, one_baseline

pytestmark = pytest.mark.no_cover  # many draws of what tests/core/test_verdict.py covers


@pytest.mark.parametrize("rows", [[(0, 1)], [(0, None)]], ids=["speedup", "metric"])
def test_a_row_at_its_limit_is_rarely_decided(rows: list[tuple[int, int | None]]) -> None:
    """2.5 % a side over all looks; 500 runs give 12.5, and 23 lie three standard deviations above."""
    random = np.random.default_rng(11)
    found = [decide(attempt_medians(random, [0.0, 0.0], [0.01] * 2), rows, [0.0]) for _ in range(500)]
    assert sum(one.passed[0] for one in found) <= 23
    assert sum(one.failed[0] for one in found) <= 23


def test_joules_that_scatter_more_than_sensors_leave_open_are_rarely_decided() -> None:
    """A row at its limit, attempts 10 % apart, gains of boards 2 %: 5 % of 3,000 runs, and three standard deviations.

    By Satterthwaite's degrees of freedom alone it was 7 %.
    """
    random = np.random.default_rng(16)
    gains = 0.02 * random.standard_normal(3000)
    found = [decide(attempt_medians(random, [gain], [0.1]), [(0, None)], [0.0], sensors=0.02) for gain in gains]
    assert sum(one.passed[0] or one.failed[0] for one in found) <= 186


def test_three_per_cent_beyond_fails_within_six_attempts() -> None:
    """At 1 % between attempts and 0.5 % within: 95 % of 150 runs, less two standard deviations."""
    random = np.random.default_rng(12)
    truths = [math.log(0.97), 0.0]
    found = [decide(attempt_medians(random, truths, [0.01] * 2, within=0.005), [(0, 1)], [0.0]) for _ in range(150)]
    assert sum(one.failed[0] for one in found) >= 137


def test_attempts_that_resemble_the_last_one_rarely_decide_a_row() -> None:
    """At its limit, correlated by 0.6: 6 % of 300 runs, and three standard deviations; 16 % without confirming."""
    random = np.random.default_rng(17)
    found = [one_baseline(random, ATTEMPTS["each point by itself remembers, correlation 0.6"], 1) for _ in range(300)]
    assert sum(one.failed[0] for one in found) <= 30
    assert sum(one.passed[0] for one in found) <= 30


def test_thirty_healthy_rows_pass_in_spite_of_bad_attempts() -> None:
    """5 % to spare, 2 % bad attempts: 90 % of 40 runs, less two standard deviations; at most 3.6 attempts a point."""
    random = np.random.default_rng(13)
    found = [family(random, [math.log(1.05)] * 30, bad=0.02) for _ in range(40)]
    assert sum(one.passed.all() for one in found) >= 32
    assert np.mean([one.attempts for one in found]) <= 3.6


def test_thirty_rows_at_their_limits_rarely_show_a_fail() -> None:
    """5 % of 60 runs are 3; 8 lie three standard deviations above."""
    random = np.random.default_rng(14)
    assert sum(family(random, [0.0] * 30).failed.any() for _ in range(60)) <= 8


def test_a_noisy_baseline_among_quiet_points_fails_few_runs() -> None:
    """Ten times the others' spread, nine rows at their limit: 5 % of 200 runs, where the common spread failed 8 %."""
    random = np.random.default_rng(15)
    rows: list[tuple[int, int | None]] = [(point, 0) for point in range(1, 10)]
    found = [decide(attempt_medians(random, [0.0] * 10, [0.02] + [0.002] * 9), rows, [0.0] * 9) for _ in range(200)]
    assert sum(one.failed.any() for one in found) <= 10
