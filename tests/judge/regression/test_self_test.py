"""What the gate can do on a machine, from its own nights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pybench.judge.regression.self_test import self_test
from pybench.report.self_test import render
from tests.nights import Fleet

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
    text = render(found, "s")
    assert text.startswith(f"s: {found.num_false} of 60 judgements are false alarms\n")
    assert max(map(len, text.splitlines())) <= 80


def test_a_night_that_changed_is_no_quiet_one() -> None:
    """It is named, and the spread is that of the others."""
    slower = replace(FEW, slower=lambda point, night: 0.1 * (point == 0 and night == 15))
    found = self_test(slower.series(np.random.default_rng(1), 19))
    assert found is not None
    assert found.alarms == ("2026-01-16",)
    assert found.metrics[0].worst_fraction < 0.06


def test_too_few_nights_say_what_is_missing() -> None:
    """Eight are learnt from, and one more is judged."""
    assert self_test(FEW.series(np.random.default_rng(1), 6)) is None
    assert "9 or more are needed" in render(None, "s")
