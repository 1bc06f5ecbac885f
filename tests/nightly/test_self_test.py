"""The gate's power on a machine, by the machine's nights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pybench.model.figures import SmallestEffects
from pybench.nightly.history_text import render_self_test
from pybench.nightly.self_test import Detectable, SelfTest, last_accepted, self_test
from pybench.nightly.values import Accepted
from tests.nights import Fleet, silent

FEW = Fleet(night_sds=(0.005, 0.005), bad_attempts=0.0, bad_nights=0.0, num_points=4)


@pytest.mark.no_cover  # the test below reaches all that it does
def test_quiet_nights_have_few_alarms_and_the_spread_is_there() -> None:
    """0.5 % between nights and what attempts add: 3 to 4 standard deviations are found in one night."""
    found = self_test(FEW.series(np.random.default_rng(1), 19))
    assert found is not None
    assert (found.num_quiet, found.num_judged, found.num_as_came, found.alarms) == (20, 60, 12, ())
    assert found.num_false <= 1
    assert [metric.num_rows for metric in found.metrics] == [4, 4]
    for metric in found.metrics:
        assert metric.spread_fraction == pytest.approx(0.0053, rel=0.3)
        assert 0.02 < metric.found_fraction <= metric.worst_fraction < 0.05
    text = render_self_test(found, "s")
    assert text.startswith(f"s: {found.num_false} of 60 judgements are false alarms\n")
    assert max(map(len, text.splitlines())) <= 80


def test_a_last_night_that_measured_nothing_is_no_night() -> None:
    """As when the machine went down: the others are judged as without it."""
    series = FEW.series(np.random.default_rng(1), 9)
    without = self_test(replace(series, runs=series.runs[:-1]))
    assert without is not None
    assert without.metrics
    assert self_test(replace(series, runs=(*series.runs[:-1], silent(series.last)))) == without


def test_a_night_that_changed_is_no_quiet_one() -> None:
    """It is named, and the spread is that of the others."""
    slower = replace(FEW, slower=lambda point, night: 0.1 * (point == 0 and night == 15))
    found = self_test(slower.series(np.random.default_rng(1), 19))
    assert found is not None
    assert found.alarms == ("2026-01-16",)
    assert found.metrics[0].worst_fraction < 0.06


def test_nights_before_an_accepted_change_are_left_out() -> None:
    """The gate finds a host that became slower changed on each night; behind an accepted change its nights are quiet.

    A change that is accepted from a later date on, or in another suite, cuts none.
    """
    slower = replace(FEW, slower=lambda _point, night: 0.1 * (night >= 12))
    series = slower.series(np.random.default_rng(1), 29)
    all_nights, since = self_test(series), series.runs[12].created_utc[:10]
    assert all_nights is not None
    assert all_nights.alarms
    accepted = Accepted(suite=series.last.suite, since=since, reason="a new board")
    found = self_test(series, (accepted, replace(accepted, since="2027-01-01"), replace(accepted, suite="other")))
    assert found is not None
    assert (found.num_quiet, found.alarms, last_accepted(series, (accepted,))) == (18, (), since)
    assert f"\nnights before {since} are left out" in render_self_test(found, "s", since=since)


def test_a_change_below_the_smallest_that_counts_is_no_alarm() -> None:
    """The self-test has the smallest effects of the gate."""
    slower = replace(FEW, slower=lambda point, night: 0.1 * (point == 0 and night == 15))
    found = self_test(slower.series(np.random.default_rng(1), 19), (), SmallestEffects(default=0.3))
    assert found is not None
    assert found.alarms == ()


def test_a_noisy_row_is_named_and_worse_has_the_sign_of_its_metric() -> None:
    """Fewer tokens/s, more joules; a row that is far noisier than the middle one stands below the table."""
    joules = Detectable(
        metric="energy_j",
        num_rows=3,
        spread_fraction=0.003,
        found_fraction=0.016,
        worst_fraction=0.58,
        noisiest="burn[gpus=1]",
    )
    tokens = replace(joules, metric="output_tokens_per_s", worst_fraction=0.02)
    found = SelfTest(num_quiet=20, num_judged=60, num_false=0, num_as_came=12, alarms=(), metrics=(joules, tokens))
    assert render_self_test(found, "s").splitlines()[-5:] == [
        "metric               rows  spread  one night finds  in its noisiest row",
        "───────────────────────────────────────────────────────────────────────",
        "energy_j                3   0.3 %           +1.6 %                +58 %",
        "output_tokens_per_s     3   0.3 %           -1.6 %                 -2 %",
        "noisiest row of energy_j: burn[gpus=1]",
    ]


def test_too_few_nights_say_what_is_missing() -> None:
    """Eight are learnt from, and one more is judged."""
    assert self_test(FEW.series(np.random.default_rng(1), 6)) is None
    assert "9 or more are needed" in render_self_test(None, "s")
