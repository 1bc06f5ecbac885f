"""Which earlier runs a run is judged with."""

from __future__ import annotations

import pytest

from pybench.model.figures import FigureKey, RunFigures
from pybench.nightly.history import series_of, trends
from tests.runs_against_runs import point, run, scaled

ROW = FigureKey("decode", "output_tokens_per_s")


SILENT = point(medians={}, absence="not measured")


def night(day: int, **changed: object) -> RunFigures:
    return run(point(), run_id=f"night {day}", created_utc=f"2026-11-{day:02}T03:00:00+00:00", **changed)


def test_runs_that_agree_are_taken_by_time() -> None:
    """Runs of another driver are counted by the key; later nights are left out."""
    runs = [night(3), night(1), night(2, driver='"1"'), night(5)]
    found = series_of(runs, night(4))
    assert [one.run_id for one in found.runs] == ["night 1", "night 3", "night 4"]
    assert found.apart == {"driver: 1 -> 580.1": 1}
    assert (found.num_later, found.has_earlier) == (1, True)
    assert (series_of(runs, night(1)).num_later, series_of(runs, night(1)).has_earlier) == (3, False)
    assert len(series_of(runs, night(4), across=["driver"]).runs) == 4


def test_another_machines_run_of_the_same_id_is_another_run() -> None:
    """It is left out by what differs, and neither is later than the other."""
    found = series_of([night(1), night(2), night(2, gpu='["GPU-9"]')], night(2))
    assert [one.run_id for one in found.runs] == ["night 1", "night 2"]
    assert (sum(found.apart.values()), found.num_later) == (1, 0)


@pytest.mark.parametrize("verdict", ["fail", "missing", "error"])
def test_a_broken_night_is_no_example(verdict: str) -> None:
    """It is named."""
    found = series_of([night(1, verdict=verdict)], night(2))
    assert (len(found.runs), found.broken) == (1, ("night 1",))


def test_a_night_that_measured_nothing_stands_at_the_end_of_those_it_belongs_to() -> None:
    """No worker reported torch: the newest night of this machine replaces the unknown software."""
    before = [night(1), night(2, torch="2.10.0"), night(3), night(4, driver='"1"')]
    last = run(SILENT, run_id="last", created_utc="2026-11-05", torch=None)
    found = series_of(before, last)
    assert [one.run_id for one in found.runs] == ["night 1", "night 3", "last"]
    assert found.apart == {"driver: 1 -> 580.1": 1, "torch: 2.10.0 -> 2.11.0": 1}
    assert found.values(ROW) == (100.0, 100.0, None)


def test_an_earlier_night_that_measured_nothing_is_a_broken_one() -> None:
    """It differs in nothing that is known."""
    silent = run(SILENT, run_id="silent", created_utc="2026-11-01", torch=None, verdict="missing")
    found = series_of([silent], night(2))
    assert (found.apart, found.broken) == ({}, ("silent",))


def test_a_value_is_the_median_attempt() -> None:
    """One bad attempt of three does not change the value; a night with other settings has none."""
    nights = [
        run(point(medians=scaled(1, (100.0, 50.0, 101.0))), run_id="1", created_utc="1"),
        run(point(digest="other"), run_id="2", created_utc="2"),
        run(run_id="3", created_utc="3"),
    ]
    assert series_of(nights, run(point(), created_utc="4")).values(ROW) == (100.0, None, None, 100.0)


def test_a_trend_has_the_spread_of_the_nights_before() -> None:
    """Medians of logarithms: 100, 101, 102 before 99: 0.99 / 1.01 - 1; deviations of about 1, 0, 1 %."""
    nights = [run(point(medians=scaled(1, (v,))), run_id=str(v), created_utc=str(v)) for v in (100.0, 101.0, 102.0)]
    (found,) = trends(series_of(nights, run(point(medians=scaled(1, (99.0,))), created_utc="999")))
    assert found.fraction == pytest.approx(99 / 101 - 1)
    assert found.spread_fraction == pytest.approx(0.0099 * 1.4826 * 1.6, rel=0.01)
    assert found.values == (100.0, 101.0, 102.0, 99.0)
