"""The decision of a night, on simulated nights whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from functools import partial

import numpy as np
import pytest

from pybench.model.figures import FigureKey, PointFigures, RunFigures
from pybench.nightly.accepted import unused
from pybench.nightly.gate import judge_night
from pybench.nightly.history import Series, series_of
from pybench.nightly.rerun import confirm, flagged, reference_of, unconfirmed
from pybench.nightly.values import Accepted, GateResult
from tests.golden_sentences import sentences_of
from tests.nights import Fleet, Slower, silent

SENTENCES = sentences_of("nightly.gate")

QUIET = Fleet(night_sds=(0.005, 0.005), bad_attempts=0.0, bad_nights=0.0)


def judged(slower: Slower | None = None, num_nights: int = 30, **changed: object) -> GateResult:
    return judge_night(nights(slower, num_nights, **changed))


def nights(slower: Slower | None = None, num_nights: int = 30, **changed: object) -> Series:
    fleet = replace(QUIET, **({"slower": slower} if slower else {}), **changed)  # type: ignore[arg-type]
    return fleet.series(np.random.default_rng(5), num_nights)


def with_points(series: Series, change: object) -> Series:
    """Every point of every night, changed by a function of it and the night's number."""
    runs = tuple(
        replace(run, points=tuple(change(point, night) for point in run.points))  # type: ignore[operator]
        for night, run in enumerate(series.runs)
    )
    return Series(runs)


def found(result: GateResult, state: str) -> set[str]:
    return {row.row.point_id for row in result.rows if row.state == state}


def test_a_quiet_night_passes() -> None:
    """Each of 40 rows shows the smallest change that one night can find."""
    result = judged()
    assert (result.state, len(result.rows)) == ("pass", 40)
    assert all(0.015 < (row.detectable_fraction or 0) < 0.035 for row in result.rows)
    assert all(0.004 < (row.spread_fraction or 0) < 0.007 for row in result.rows)


def test_fewer_than_eight_nights_learn() -> None:
    """A large change tonight does not help: the spread between nights is not known yet."""
    result = judged(lambda point, night: 0.2 * (point == 0 and night == 7), 7)
    assert result.state == "learning"
    assert {row.reason for row in result.rows} == {"7 of 8 nights"}


def test_a_slow_point_is_found_and_dated() -> None:
    """3 % since the last night but one; both its rows."""
    result = judged(lambda point, night: 0.03 * (point == 3 and night >= 29))
    assert (result.state, found(result, "regressed")) == ("regressed", {"p3"})
    assert len(flagged(result)) == 2
    for row in flagged(result):
        assert abs(row.fraction or 0) == pytest.approx(0.03, abs=0.01)
        assert row.before is not None


def test_a_small_change_is_found_by_several_nights_together() -> None:
    """1.5 % at a spread of 0.5 %, the fourth night."""
    result = judged(lambda point, night: 0.015 * (point == 3 and night >= 27))
    assert found(result, "regressed") == {"p3"}
    assert max(row.num_recent for row in flagged(result)) > 1


def test_what_is_over_tonight_is_no_change() -> None:
    """Two bad nights before a good one."""
    result = judged(lambda point, night: 0.04 * (point == 3 and night in {28, 29}))
    assert found(result, "regressed") == set()


def test_nights_that_were_as_far_off_before_are_counted() -> None:
    """Earlier nights were 5 % off. A row with many of them has two levels: a night on the lower one passes."""
    for nights_off, state, num_as_far in (
        ({12, 20, 30}, "regressed", 2),
        ({30}, "regressed", 0),
        ({*range(6, 31, 3)}, "pass", 0),
    ):
        result = judged(partial(_off, 3, nights_off))
        assert result.state == state
        assert max(row.nights_as_far[0] for row in result.rows if row.row.point_id == "p3") == num_as_far


def _off(at: int, nights_off: set[int], point: int, night: int) -> float:
    """5 % slower at one point on some nights."""
    return 0.05 * (point == at and night in nights_off)


def test_a_change_below_the_smallest_effect_counts_as_none() -> None:
    """0.8 % at a spread of 0.1 % is beyond chance, and nothing that anybody acts on."""
    result = judged(lambda point, night: 0.008 * (point == 3 and night == 30), night_sds=(0.001, 0.001), attempt_sd=0.0)
    assert result.state == "pass"


def test_an_improvement_is_listed_and_passes() -> None:
    """With others unchanged the night passes."""
    result = judged(lambda point, night: -0.05 * (point == 3 and night == 30))
    assert (result.state, found(result, "improved")) == ("pass", {"p3"})


def test_a_host_that_is_off_is_one_finding_with_its_evidence() -> None:
    """All points 3 % slower, with lower clocks, more heat and a thermal slowdown that was not there before."""

    def hot(point: PointFigures, night: int) -> PointFigures:
        if night == 30:
            return replace(point, sm_clock_hz=1.92e9, temperature_c=88.0, held_by=("hardware thermal slowdown",))
        return replace(point, sm_clock_hz=1.98e9, temperature_c=70.0)

    result = judge_night(with_points(nights(lambda _point, night: 0.03 * (night == 30)), hot))
    assert result.state == "host off"
    assert found(result, "regressed") == set()
    (speed, energy) = result.host
    assert (speed.noun, energy.noun) == ("speed", "energy")
    assert speed.fraction == pytest.approx(-0.03, abs=0.005)
    assert energy.fraction == pytest.approx(0.03, abs=0.005)
    assert speed.evidence == (
        "SM clock -3.0 %",
        "temperature +18 °C",
        SENTENCES["a_host_that_is_off_is_one_finding"],
    )


def test_a_point_that_is_slower_than_its_slow_host_is_found_beside_it() -> None:
    """The host 2 %, one point 5 % more."""
    result = judged(lambda point, night: (0.02 + 0.05 * (point == 3)) * (night == 30))
    assert (result.state, found(result, "regressed"), len(result.host)) == ("regressed", {"p3"}, 2)


@pytest.mark.parametrize(("slower", "num_nights"), [(0.0099, 12), (0.00998, 11)])
def test_a_host_is_off_from_the_smallest_effect_on(slower: float, num_nights: int) -> None:
    """1 % is a logarithm of 0.00995; of twelve steady nights the third was slower by about as much."""
    steady = replace(QUIET, night_sds=(1e-9, 1e-9), attempt_sd=0.0, slower=lambda _, night: slower * (night == 2))
    result = judge_night(steady.series(np.random.default_rng(5), 12))
    assert {row.num_nights for row in result.rows} == {num_nights}


def test_a_host_that_was_off_is_no_example() -> None:
    """A night on which all points were 3 % slower widens no spread."""
    quiet, off = judged(), judged(lambda _point, night: 0.03 * (night == 20))
    spreads = [[row.spread_fraction for row in sorted(result.rows, key=lambda row: row.row)] for result in (quiet, off)]
    assert spreads[1] == pytest.approx(spreads[0], rel=0.15)


@pytest.mark.parametrize("num_slow", [1, 14, 40])
def test_a_host_that_stays_slow_does_not_become_normal(num_slow: int) -> None:
    """Also once it was slow on most nights."""
    result = judged(lambda _point, night: 0.05 * (night >= 12), 12 + num_slow)
    assert (result.state, found(result, "regressed")) == ("host off", set())
    assert [shift.num_shifted for shift in result.host] == [20, 20]
    assert {row.num_nights for row in result.rows} <= {11, 12}


def test_a_host_whose_points_are_all_accepted_begins_anew() -> None:
    """It is judged again from the next night on: what is slower then is found."""
    accepted = tuple(Accepted(point=f"p{n}", since="2026-01-13", reason="the new driver") for n in range(20))
    for num in (13, 30):
        assert judge_night(nights(lambda _point, night: 0.05 * (night >= 12), num), accepted).state == "pass"
    slower = nights(lambda point, night: 0.05 * (night >= 12) + 0.05 * (point == 3 and night == 30))
    assert found(judge_night(slower, accepted), "regressed") == {"p3"}


ON_ALL = Accepted(suite="s", since="2026-01-21", reason="the new driver")
"""Of the nights below, the host being 5 % slower from the 20th on, which is the first that is accepted."""


def slow_host(point: int, night: int, more: float = 0.0) -> float:
    """``more`` is the loss of a row in addition to its host's."""
    return 0.05 * (night >= 20) + more


def test_a_suite_is_accepted_as_its_points_are() -> None:
    """One entry is twenty; tonight they learn, and from the next night on they are judged."""
    each = [replace(ON_ALL, suite=None, point=f"p{n}") for n in range(20)]
    for num in (21, 22, 40):
        series = nights(slow_host, num)
        assert judge_night(series).state == "host off"
        result = judge_night(series, (ON_ALL,))
        assert result == judge_night(series, each)
        assert (result.state, result.host) == ("pass", ())
    tonight = judge_night(nights(slow_host, 20), (ON_ALL,))
    assert {row.reason for row in tonight.rows} == {"level accepted on 2026-01-21; judged from the next night"}


def test_a_suite_is_accepted_on_its_machine_alone() -> None:
    """Another suite or machine that reads the same file keeps its level."""
    series = nights(slow_host, 25)
    series = Series(tuple(replace(run, keys={"gpu": '["NVIDIA H200 GPU-0"]'}) for run in series.runs))
    for entry in (replace(ON_ALL, suite="other"), replace(ON_ALL, gpu="GPU-1")):
        assert judge_night(series, (entry,)).state == "host off"
    assert judge_night(series, (replace(ON_ALL, gpu="GPU-0"),)).state == "pass"


def test_what_accepts_a_slow_host_is_named_with_its_night() -> None:
    """By the change-point test. It is what a person writes, but for the reason."""
    for num in (20, 22, 24, 40):
        result = judge_night(nights(slow_host, num))
        assert result.acceptance == replace(ON_ALL, reason="")
        assert {shift.level_change.since for shift in result.host if shift.level_change} == {"2026-01-21"}
    assert judged().acceptance is None


@pytest.mark.parametrize("num", [30, 32, 40])
def test_a_bad_night_before_a_host_changes_is_not_its_first(num: int) -> None:
    """Five nights before it the host was off once, and as usual again: the night that is named is the later one."""
    result = judged(lambda _point, night: 0.02 * (night >= 30) + 0.06 * (night == 25), num)
    assert result.acceptance is not None
    assert result.acceptance.since == "2026-01-31"


@pytest.mark.parametrize(("num_accepted", "num_slower"), [(1, 0), (1, 12), (1, 30), (4, 6), (12, 1)])
def test_a_fall_soon_after_a_host_is_accepted_is_found(num_accepted: int, num_slower: int) -> None:
    """5 % of one point, from the second night of the level on: that night, and however long it lasts."""
    fall = 20 + num_accepted
    series = nights(
        lambda point, night: slow_host(point, night, 0.05 * (point == 3 and night >= fall)), fall + num_slower
    )
    result = judge_night(series, (ON_ALL,))
    assert (result.state, found(result, "regressed"), result.host) == ("regressed", {"p3"}, ())


@pytest.mark.parametrize(("num_accepted", "num_slower"), [(1, 0), (1, 7), (1, 30), (7, 3)])
@pytest.mark.parametrize("change", [0.03, -0.03])
def test_a_host_that_changes_again_soon_is_found(num_accepted: int, num_slower: int, change: float) -> None:
    """As one finding with its night, also where nearly all nights of the accepted level have the change."""
    again = 20 + num_accepted
    series = nights(lambda point, night: slow_host(point, night, change * (night >= again)), again + num_slower)
    result = judge_night(series, (ON_ALL,))
    assert (result.state, found(result, "regressed")) == ("host off", set())
    assert result.acceptance is not None
    assert result.acceptance.since == series.runs[again].created_utc[:10]
    assert judge_night(series, (ON_ALL, replace(result.acceptance, reason="r"))).state in {"pass", "learning"}


def test_a_host_that_drifts_on_is_found() -> None:
    """0.1 % a night from the first accepted one on, which no single night shows."""
    result = judge_night(
        nights(lambda point, night: slow_host(point, night, 0.001 * max(0, night - 20)), 50), (ON_ALL,)
    )
    assert result.state == "regressed"
    assert len(found(result, "regressed")) > 10


@pytest.mark.parametrize(("num_late", "num_accepted", "num_slower"), [(6, 3, 6), (2, 1, 10), (2, 1, 0)])
def test_a_host_that_is_accepted_late_has_a_level_all_the_same(
    num_late: int, num_accepted: int, num_slower: int
) -> None:
    """The nights between its change and the date are of neither level, and no beginning of a later change."""
    start = 20 + num_late
    late = replace(ON_ALL, since=(date(2026, 1, 1) + timedelta(days=start)).isoformat())
    for num in (start + 1, 40):
        assert judge_night(nights(slow_host, num), (late,)).state == "pass"
    fall = start + num_accepted
    again = nights(lambda point, night: slow_host(point, night, 0.03 * (night >= fall)), fall + num_slower)
    result = judge_night(again, (late,))
    assert result.state == "host off"
    assert result.acceptance is not None
    assert result.acceptance.since == again.runs[fall].created_utc[:10]


def test_what_accepts_a_host_accepts_no_point_that_is_gone() -> None:
    """Before its date or after it, absent or failed: that takes an entry of the point."""
    for first in (15, 30):
        series = nights(slow_host, 40)
        gone = Series(tuple(_without(run, "p3") if night >= first else run for night, run in enumerate(series.runs)))
        failed = Series((*gone.runs[:-1], _failed(series.last, "p3")))
        for lost in (gone, failed):
            assert found(judge_night(lost, (ON_ALL,)), "not measured") == {"p3"}
            own = Accepted(point="p3", since=series.runs[first].created_utc[:10], reason="the suite is shorter")
            assert judge_night(lost, (ON_ALL, own)).state == "pass"
    new = PointFigures(
        id="new", benchmark="p", axes={}, num_gpus=1, digest="d", medians={}, absence="9", is_missing=True
    )
    series = nights(slow_host, 40)
    tonight = Series((*series.runs[:-1], replace(series.last, points=(*series.last.points, new))))
    assert judge_night(tonight, (ON_ALL,)).unmeasured == (("new", "9"),)


def test_a_point_that_is_accepted_on_a_slow_host_is_judged() -> None:
    """Its level is the level of the slow host, so the value of tonight is normal; the other rows keep their levels."""
    accepted = (Accepted(point="p3", since="2026-01-15", reason="a wider layer"),)

    def slower(point: int, night: int) -> float:
        return 0.05 * (night >= 12) + 0.1 * (point == 3 and night >= 14)

    result = judge_night(nights(slower, 25), accepted)
    assert (result.state, found(result, "pass"), len(found(result, "host off"))) == ("host off", {"p3"}, 19)
    worse = nights(lambda point, night: slower(point, night) + 0.05 * (point == 3 and night == 25), 25)
    assert found(judge_night(worse, accepted), "regressed") == {"p3"}


def test_a_new_point_on_a_slow_host_learns_and_is_judged() -> None:
    """All its nights are slow ones."""
    series = nights(lambda point, night: 0.05 * (night >= 12) + 0.05 * (point == 3 and night == 30))
    new = Series(tuple(_without(run, "p3") if night < 14 else run for night, run in enumerate(series.runs)))
    result = judge_night(new)
    assert (found(result, "regressed"), len(found(result, "host off"))) == ({"p3"}, 19)


def test_a_slow_first_night_of_a_level_is_no_example() -> None:
    """The host was off on the night from which a change is accepted, and never again: the level begins after it."""
    accepted = (Accepted(point="p3", since="2026-01-26", reason="a wider layer"),)
    step = nights(lambda point, night: 0.1 * (point == 3 and night >= 25) + 0.04 * (night == 25))
    result = judge_night(step, accepted)
    assert result.state == "pass"
    assert {row.num_nights for row in result.rows if row.row.point_id == "p3"} == {4}


def test_a_host_that_changed_within_its_first_nights_still_has_rows_to_judge() -> None:
    """Which level is its usual one is not known; speed and energy may differ in it, and no night would be left."""
    for seed in range(6):
        slow = replace(Fleet(), slower=lambda _point, night: 0.05 * (night >= 5), bad_nights=0.0)
        result = judge_night(slow.series(np.random.default_rng(seed), 25))
        assert found(result, "learning") == set()


def test_a_change_that_vanishes_in_cycles_is_the_clocks() -> None:
    """5 % slower with a clock 5 % lower, held by the power limit; its energy is the row's own."""

    def capped(point: PointFigures, night: int) -> PointFigures:
        is_low = night == 30 and point.id == "p3"
        held = ("power limit",) if is_low else ()
        return replace(point, sm_clock_hz=1.88e9 if is_low else 1.98e9, held_by=held)

    series = nights(lambda point, night: 0.052 * (point == 3 and night == 30))
    result = judge_night(with_points(series, capped))
    (row,) = [row for row in result.rows if row.state == "clock"]
    assert row.row == FigureKey("p3", "output_tokens_per_s")
    assert row.reason == SENTENCES["a_change_that_vanishes_in_cycles_is"]
    assert [row.row.metric for row in flagged(result)] == ["energy_j_per_output_token"]


@pytest.mark.parametrize(("low", "clock_hz", "state"), [((27, 30), 1.94e9, "clock"), ((28, 29), 1.90e9, "regressed")])
def test_clocks_are_those_of_the_nights_that_are_looked_at(low: tuple[int, ...], clock_hz: float, state: str) -> None:
    """2 % slower on nights 27 and 30, between which other processes ran: 2 % of clock on those two nights explain it.

    Nights 28 and 29 explain nothing, also where the last two have 2 % less clock on average.
    """

    def capped(point: PointFigures, night: int) -> PointFigures:
        flags = ("not_alone",) if night in {28, 29} else ()
        return replace(point, sm_clock_hz=clock_hz if night in low else 1.98e9, flags=flags)

    series = nights(lambda point, night: 0.02 * (point == 3 and night in {27, 30}))
    rows = judge_night(with_points(series, capped)).rows
    (speed,) = [row for row in rows if row.row == FigureKey("p3", "output_tokens_per_s")]
    assert (speed.state, speed.num_recent) == (state, 2)


def test_a_slow_drift_is_dated_with_an_interval() -> None:
    """A level that is 1.2 % lower from night 20 on; no single night is beyond what nights scatter."""
    series = nights(lambda point, night: 0.012 * (point == 3 and night >= 20), 50)
    result = judge_night(series)
    rows = [row for row in result.rows if row.row.point_id == "p3" and row.state == "regressed"]
    assert rows
    for row in rows:
        change = row.level_change
        assert change is not None
        assert change.earliest <= change.since <= change.latest
        assert abs((date.fromisoformat(change.since) - date(2026, 1, 21)).days) <= 4
        assert abs(change.fraction) == pytest.approx(0.012, abs=0.004)
    assert found(result, "regressed") == {"p3"}
    # A rerun at the old level clears them, one at the new level confirms them.
    for slower, state in ((0.0, "pass"), (0.012, "regressed")):
        again, _ = replace(QUIET, slower=lambda p, _n: slower * (p == 3)).series_with_reruns(  # noqa: B023
            np.random.default_rng(5), 50
        )
        assert confirm(result, again.runs[-1]).state == state


@pytest.mark.parametrize("earlier", [0.0, -0.04])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("num", [1, 2, 5])
def test_a_fresh_change_is_dated_on_its_first_night(num: int, sign: int, earlier: float) -> None:
    """Also where it is of fewer nights than a change needs that no look shows, and after a change the other way."""
    series = nights(lambda point, night: sign * (earlier * (night >= 12) + 0.1 * (night > 30 - num)) * (point == 3))
    result = judge_night(series)
    rows = [row for row in result.rows if row.row.point_id == "p3"]
    assert {row.state for row in rows} == {"regressed" if sign > 0 else "improved"}
    first = series.runs[31 - num].created_utc[:10]
    assert {row.level_change.since for row in rows if row.level_change} == {first}
    accepted = (Accepted(point="p3", since=first, reason="meant"),)
    assert judge_night(series, accepted).state == "pass"


def test_an_accepted_change_is_the_new_level() -> None:
    """After one night of it, the row is judged with the spread of the nights before; another change is found."""
    accepted = (Accepted(point="p3", since="2026-01-29", reason="a wider layer"),)
    step = nights(lambda point, night: 0.1 * (point == 3 and night >= 28))
    assert found(judge_night(step), "regressed") == {"p3"}
    assert judge_night(step, accepted).state == "pass"
    worse = nights(lambda point, night: (0.1 + 0.05 * (night == 30)) * (point == 3 and night >= 28))
    assert found(judge_night(worse, accepted), "regressed") == {"p3"}
    only = (Accepted(point="p3", metric="output_tokens_per_s", since="2026-01-29", reason="r"),)
    assert {row.row.metric for row in flagged(judge_night(step, only))} == {"energy_j_per_output_token"}


@pytest.mark.parametrize(("num_accepted", "num_slower"), [(1, 1), (1, 12), (3, 2), (3, 6), (3, 20), (7, 10)])
def test_a_fall_soon_after_an_acceptance_does_not_become_normal(num_accepted: int, num_slower: int) -> None:
    """5 % below a level of one to seven nights; the spread of the nights before is known, so that it is no example."""
    accepted = (Accepted(point="p3", since="2026-01-21", reason="a wider layer"),)
    fall = 20 + num_accepted

    def slower(point: int, night: int) -> float:
        return (0.1 * (night >= 20) + 0.05 * (night >= fall)) * (point == 3)

    result = judge_night(nights(slower, fall + num_slower), accepted)
    assert found(result, "regressed") == {"p3"}
    rows = [row for row in result.rows if row.row.point_id == "p3"]
    assert [row.num_nights for row in rows] == [num_accepted, num_accepted]


def test_the_first_nights_of_all_may_lie_apart() -> None:
    """No earlier level shows how far nights scatter: one 5 % off among the first eight is one of them."""
    result = judged(lambda point, night: 0.05 * (point == 3 and night == 2), 12)
    assert {row.num_nights for row in result.rows if row.row.point_id == "p3"} == {12}
    assert result.state == "pass"


def test_an_acceptance_that_does_not_count_silences_nothing() -> None:
    """One of a later date, of a point or a metric that no run has: each is named, and the row stays regressed."""
    series = nights(lambda point, night: 0.1 * (point == 3 and night == 30))
    later = Accepted(point="p3", since="2027-01-31", reason="a slip of the year")
    assert found(judge_night(series, (later,)), "regressed") == {"p3"}
    tonight = Accepted(point="p3", since=series.last.created_utc[:10], reason="meant")
    unknown = (Accepted(point="p33", since="2026-01-20", reason="r"), replace(tonight, metric="ttft_s"))
    more = len(series.last.points) - 3
    assert list(unused((later, tonight, *unknown), series.last, series.runs)) == [
        SENTENCES["an_acceptance_that_does_not_count"],
        f"not accepted: p33: no run here has such a point; this one has p0, p1, p2 and {more} more",
        SENTENCES["an_acceptance_that_does_not_count_2"],
    ]
    reasons = {row.reason for row in judge_night(series, (tonight,)).rows if row.state == "learning"}
    assert reasons == {"level accepted on 2026-01-31; judged from the next night"}


def test_a_change_that_is_not_accepted_never_becomes_normal() -> None:
    """The twentieth night at the new level is flagged as the first was."""
    result = judged(lambda point, night: 0.05 * (point == 3 and night >= 11))
    assert found(result, "regressed") == {"p3"}


def test_a_vanished_point_is_not_measured_until_it_is_accepted() -> None:
    """However long it is gone."""
    series = nights()
    gone = Series((*(r if n < 10 else _without(r, "p3") for n, r in enumerate(series.runs)),))
    result = judge_night(gone)
    assert (result.state, found(result, "not measured")) == ("not measured", {"p3"})
    accepted = (Accepted(point="p3", since="2026-01-12", reason="the suite is shorter"),)
    assert judge_night(gone, accepted).state == "pass"


def test_a_new_point_that_failed_does_not_pass() -> None:
    """No night has a row of it: the point is named with the reason until it is accepted, unless it can't run."""
    series = nights()
    new = PointFigures(id="new", benchmark="p", axes={}, num_gpus=1, digest="d", medians={}, absence="exit code 9")
    failed, skipped = replace(new, is_missing=True), replace(new, id="large", absence="8 GPUs (4 here)")
    tonight = Series((*series.runs[:-1], replace(series.last, points=(*series.last.points, failed, skipped))))
    result = judge_night(tonight)
    assert (result.state, result.unmeasured) == ("not measured", (("new", "exit code 9"),))
    assert {row.state for row in result.rows} == {"pass"}
    assert judge_night(Series((tonight.last,))).state == "not measured"
    accepted = Accepted(point="new", since="2026-01-31", reason="known to fail")
    assert judge_night(tonight, (accepted,)).state == "pass"
    gone = judge_night(Series((*series.runs[:-1], _failed(series.last, "p3"))))
    assert (found(gone, "not measured"), gone.unmeasured) == ({"p3"}, ())


def test_a_new_point_learns_and_the_night_passes() -> None:
    """It has no nights yet."""
    series = nights()
    new = Series((*(_without(run, "p3") for run in series.runs[:-1]), series.last))
    result = judge_night(new)
    assert (result.state, found(result, "learning")) == ("pass", {"p3"})


def test_a_point_with_other_settings_is_incomparable() -> None:
    """Its nights were measured otherwise."""
    series = with_points(nights(), lambda p, night: replace(p, digest="new") if (p.id, night) == ("p3", 30) else p)
    result = judge_night(series)
    assert (result.state, found(result, "incomparable")) == ("incomparable", {"p3"})


def test_nights_that_all_differ_are_incomparable() -> None:
    """By the key's name, with their number."""
    series = nights(num_nights=9)
    last = replace(series.last, keys={"driver": '"2"'})
    earlier = [replace(run, keys={"driver": '"1"'}) for run in series.runs[:-1]]
    result = judge_night(series_of(earlier, last))
    assert (result.state, result.differences) == ("incomparable", ("driver: 1 -> 2 (9)",))


def test_a_night_that_measured_nothing_is_not_measured() -> None:
    """Rows are compared one by one; a value that no worker reported is no difference."""
    series = nights(num_nights=9)
    result = judge_night(series_of(series.runs[:-1], replace(silent(series.last), keys={})))
    assert (result.state, result.differences) == ("not measured", ())
    assert {row.state for row in result.rows} == {"not measured"}
    assert len(result.rows) == 40


def _without(run: RunFigures, point_id: str) -> RunFigures:
    return replace(run, points=tuple(point for point in run.points if point.id != point_id))


def _failed(run: RunFigures, point_id: str) -> RunFigures:
    def fail(point: PointFigures) -> PointFigures:
        return replace(point, medians={}, absence="failed", is_missing=True) if point.id == point_id else point

    return replace(run, points=tuple(fail(point) for point in run.points))


def _rerun(result: GateResult, factor: float, num: int = 3) -> RunFigures:
    """A rerun: its figures are the earlier figures times a factor, with a spread of 0.1 %."""
    points: dict[str, dict[str, tuple[float, ...]]] = {}
    for row in flagged(result):
        values = tuple((row.before or 0) * factor * (1 + 0.001 * n) for n in range(num))
        points.setdefault(row.row.point_id, {})[row.row.metric] = values
    made = (
        PointFigures(id=name, benchmark="p", axes={}, num_gpus=1, digest="d", medians=medians)
        for name, medians in points.items()
    )
    return RunFigures(run_id="rerun", created_utc="", suite="s", verdict="pass", keys={}, points=tuple(made))


def slow_speed() -> GateResult:
    """A night with one flagged speed: 5 % lower."""
    result = judged(lambda point, night: 0.05 * (point == 3 and night == 30))
    rows = tuple(row for row in result.rows if not (row.state == "regressed" and row.unit == "J/token"))
    return replace(result, rows=rows)


@pytest.mark.parametrize(
    ("factor", "state", "word"),
    [(0.95, "regressed", "confirmed"), (1.0, "pass", "cleared"), (0.985, "undecided", "not confirmed")],
)
def test_a_rerun_confirms_clears_or_leaves_open(factor: float, state: str, word: str) -> None:
    """The change is there again, is gone, or is half there."""
    result = slow_speed()
    (flag,) = flagged(result)
    again = confirm(result, _rerun(result, factor))
    (row,) = [row for row in again.rows if row.row == flag.row]
    assert (again.state, row.state, row.confirmation) == (state, state, word)
    assert "a rerun shows" in row.reason


def test_a_reference_beside_it_takes_the_host_out() -> None:
    """Both are 5 % slow tonight: it is not the software. Only the run is: it is."""
    result = slow_speed()
    assert confirm(result, _rerun(result, 0.95), _rerun(result, 0.95)).state == "pass"
    assert confirm(result, _rerun(result, 0.95), _rerun(result, 1.0)).state == "regressed"


def test_a_rerun_confirms_no_row_like_earlier_nights_of_other_rows() -> None:
    """Nights of three other points were 5 % off, and over later: tonight's row stays undecided, with their number."""
    off = {(5, 9), (6, 14), (7, 20), (3, 30)}
    result = judged(lambda point, night: 0.05 * ((point, night) in off))
    again = confirm(result, _rerun(result, 0.95))
    (row,) = (row for row in again.rows if row.row.metric == "output_tokens_per_s" and row.confirmation)
    assert (row.row.point_id, row.state, row.confirmation) == ("p3", "undecided", "confirmed")
    assert "earlier nights gave such a false alarm" in row.reason


def test_without_a_rerun_the_row_stays_with_the_reason() -> None:
    """Another machine can't measure it again."""
    result = unconfirmed(slow_speed(), "another machine")
    assert (result.state, result.note) == ("regressed", "not confirmed: another machine")
    assert [row.confirmation for row in result.rows if row.state == "regressed"] == ["not confirmed"]


def test_the_reference_is_the_newest_night_before_the_change() -> None:
    """Not the night before, which has the change already."""
    series = nights(lambda point, night: 0.05 * (point == 3 and night >= 25))
    result = judge_night(series)
    reference = reference_of(series, flagged(result))
    assert reference is not None
    assert "2026-01-22" <= reference.run_id <= "2026-01-26"


def test_absurd_values_are_judged_all_the_same() -> None:
    """A file can hold any number: a ratio of 1e308 over 1e-308 has no exponent."""

    def absurd(point: PointFigures, night: int) -> PointFigures:
        value = (1e308 if night == 30 else 1e-308) if point.id == "p3" else 1.0
        return replace(point, medians={"ttft_s": (value,) * 3, "energy_j_per_output_token": (0.0, -1.0, 0.0)})

    result = judge_night(with_points(nights(), absurd))
    assert found(result, "regressed") == {"p3"}
    assert "p3" in {row.row.point_id for row in result.rows}


def test_what_was_measured_beside_a_foreign_process_is_not_judged() -> None:
    """Tonight it is undecided; an earlier night is no example."""

    def beside(point: PointFigures, night: int) -> PointFigures:
        return replace(point, flags=("not_alone",)) if point.id == "p3" and night in {20, 30} else point

    series = nights(lambda point, night: 0.4 * (point == 3 and night in {20, 30}))
    result = judge_night(with_points(series, beside))
    assert (result.state, found(result, "undecided")) == ("undecided", {"p3"})
    assert {row.num_nights for row in result.rows if row.row.point_id == "p3"} == {29}


def test_a_changed_row_names_the_build_of_each_side() -> None:
    """Where the workers changed with it; a history of one build names none."""
    series = nights(lambda point, night: 0.04 * (point == 3 and night >= 28))
    runs = tuple(replace(run, keys={"build": "1a" if n < 28 else "2b"}) for n, run in enumerate(series.runs))
    for changed, words in ((Series(runs), True), (series, False)):
        reasons = {row.reason for row in judge_night(changed).rows if row.state == "regressed"}
        assert all(("workers of build 1a -> 2b" in reason) == words for reason in reasons)
        assert reasons
