"""Intervals against limits, and what decides a run."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.judge.verdict import judge_ratio, judge_value, limits, overall
from pybench.model.expected import ExpectedRow
from pybench.model.results import CheckResult, Estimate, Expected, PointResult, ScalingResult, Verdict

_EXPECTED = Expected(minimum=1.7, maximum=1.9, source="s", table="t")


def _row(**figure: Any) -> ExpectedRow:
    values = {"machine": "h200", "workload": "generate", "metric": "m", "count": 2, "source": "s", "kind": "measured"}
    return ExpectedRow(**{**values, **figure})


def test_a_value_is_a_range_of_its_tolerance() -> None:
    """2 give or take a quarter."""
    assert limits(_row(value=2.0, tolerance=0.25)) == (1.5, 2.5)


def test_a_range_is_taken_as_it_is() -> None:
    """No tolerance on top."""
    assert limits(_row(minimum=1.2, maximum=1.5)) == (1.2, 1.5)
    assert limits(_row(maximum=1.5)) == (None, 1.5)


@pytest.mark.parametrize(
    ("low", "high", "verdict", "flags"),
    [
        (1.7, 1.8, "pass", ()),
        (1.95, 2.0, "pass", ("better_than_expected",)),
        (1.5, 1.69, "fail", ()),
        (1.5, 1.7, "inconclusive", ()),
        (1.69, 1.8, "inconclusive", ()),
        (1.4, 2.1, "inconclusive", ()),
        (2.21, 2.3, "inconclusive", ("suspect_baseline",)),
    ],
)
def test_throughput_is_held_to_its_minimum(low: float, high: float, verdict: str, flags: tuple[str, ...]) -> None:
    """Twice the GPUs, 1.7 to 1.9 expected: the edges belong to a pass, and 2 x 1.1 is the superlinear margin."""
    found, _, found_flags = judge_ratio((low + high) / 2, low, high, _EXPECTED, 2, more=True)
    assert (found, found_flags) == (verdict, flags)


@pytest.mark.parametrize(
    ("low", "high", "verdict", "flags"),
    [
        (1.75, 1.9, "pass", ()),
        (1.0, 1.1, "pass", ("better_than_expected",)),
        (1.91, 2.0, "fail", ()),
        (1.8, 2.0, "inconclusive", ()),
        (5.0, 6.0, "fail", ()),
    ],
)
def test_energy_is_held_to_its_maximum(low: float, high: float, verdict: str, flags: tuple[str, ...]) -> None:
    """Less is better, and no superlinear rule applies."""
    found, _, found_flags = judge_ratio((low + high) / 2, low, high, _EXPECTED, 2, more=False)
    assert (found, found_flags) == (verdict, flags)


def test_reasons_say_what_was_expected_and_found() -> None:
    """With the interval; the suspect baseline names what to look for."""
    assert judge_ratio(1.6, 1.5, 1.69, _EXPECTED, 2, more=True)[1] == "at least 1.7 expected, found 1.6 [1.5, 1.69]"
    assert judge_ratio(1.8, 1.75, 1.9, _EXPECTED, 2, more=False)[1].startswith("at most 1.9 expected")
    assert "baseline was held back" in judge_ratio(4.6, 4.5, 4.7, _EXPECTED, 2, more=True)[1]


def test_one_attempt_decides_nothing() -> None:
    """Even far below: the spread between runs is unknown."""
    assert judge_ratio(0.5, None, None, _EXPECTED, 2, more=True)[:2] == (
        "inconclusive",
        "one attempt shows no spread between runs; two are needed",
    )


def test_without_a_row_nothing_is_judged() -> None:
    """Nor with a row that has no limit on the side that matters. A suspect baseline shows all the same."""
    assert judge_ratio(1.8, 1.7, 1.9, None, 2, more=True)[0] == "no_expectation"
    one_sided = Expected(minimum=None, maximum=1.9, source="s", table="t")
    assert judge_ratio(1.8, 1.7, 1.9, one_sided, 2, more=True)[0] == "no_expectation"
    assert judge_ratio(4.6, 4.5, 4.7, None, 2, more=True)[2] == ("suspect_baseline",)


@pytest.mark.parametrize(
    ("minimum", "maximum", "verdict"),
    [
        (90.0, None, "pass"),
        (90.0, 110.0, "pass"),
        (None, 94.0, "fail"),
        (106.0, None, "fail"),
        (100.0, None, "inconclusive"),
        (100.0, 94.0, "fail"),
    ],
)
def test_absolute_limits(minimum: float | None, maximum: float | None, verdict: str) -> None:
    """Interval 95 to 105; the worse side decides."""
    value = Estimate(value=100.0, low=95.0, high=105.0, unit="tokens/s")
    assert judge_value(value, minimum, maximum)[0] == verdict


def test_absolute_reasons() -> None:
    """Both limits are shown, with the unit."""
    value = Estimate(value=100.0, low=95.0, high=105.0, unit="tokens/s")
    assert judge_value(value, 90.0, 110.0)[1] == "found 100 [95, 105] tokens/s, allowed least 90 and most 110"
    assert judge_value(None, 90.0, None) == ("missing", "the metric was not measured")
    assert judge_value(Estimate(value=1.0, low=None, high=None, unit="s"), 90.0, None)[0] == "inconclusive"


def _scaling(verdict: Verdict) -> ScalingResult:
    return ScalingResult(
        benchmark="b",
        metric="m",
        scaling="strong",
        along="tensor_parallel",
        group={},
        count=2,
        baseline_count=1,
        point_id="p2",
        baseline_id="p1",
        speedup=None,
        speedup_low=None,
        speedup_high=None,
        efficiency=None,
        expected=None,
        verdict=verdict,
        reason=f"it is {verdict}",
    )


def _check(verdict: Verdict) -> CheckResult:
    return CheckResult(
        benchmark="b",
        metric="m",
        point_id="p",
        value=None,
        minimum=1,
        maximum=None,
        verdict=verdict,
        reason="r",
    )


def _point(status: Any) -> PointResult:
    return PointResult(
        id="p",
        benchmark="b",
        axes={},
        status=status,
        reason=None if status == "ok" else f"is {status}",
        num_gpus=1,
        attempts=1,
        failed_attempts=0,
        metrics={},
        energy_by_gpu_j={},
    )


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (("pass", "fail", "error", "missing", "inconclusive"), "fail"),
        (("pass", "error", "missing", "inconclusive"), "error"),
        (("pass", "missing", "inconclusive"), "missing"),
        (("pass", "inconclusive", "no_expectation"), "inconclusive"),
        (("pass", "no_expectation"), "pass"),
        (("no_expectation",), "no_expectation"),
    ],
)
def test_the_worst_row_decides(verdicts: tuple[Verdict, ...], expected: Verdict) -> None:
    """A fail stands before an error, so that broken points can't hide a slow machine."""
    rows = [_scaling(verdict) for verdict in verdicts]
    assert overall([_point("ok")], rows, [], declared=True)[0] == expected


def test_the_first_culprit_is_named_and_the_others_counted() -> None:
    """One line for a terminal."""
    rows = [_scaling("pass"), _scaling("fail"), _scaling("fail")]
    assert overall([_point("ok")], rows, [], declared=True) == ("fail", "p2: m: it is fail (and 1 more)")
    assert overall([_point("ok")], [], [_check("fail")], declared=True) == ("fail", "p: m: r")


def test_points_count_without_any_expectation() -> None:
    """A worker that broke is an error, a point not measured is missing; a skip was never owed."""
    assert overall([_point("ok"), _point("failed")], [], [], declared=False) == ("error", "p: is failed")
    assert overall([_point("ok"), _point("missing")], [], [], declared=False) == ("missing", "p: is missing")
    assert overall([_point("skipped")], [], [], declared=False) == ("missing", "nothing was measured")


def test_nothing_judged_is_no_pass() -> None:
    """Measured is not the same as shown to be right."""
    verdict, reason = overall([_point("ok")], [_scaling("no_expectation")], [], declared=True)
    assert (verdict, reason) == ("no_expectation", "nothing could be judged: no table has a row for this machine")
    assert overall([_point("ok")], [], [], declared=False)[1] == "the suite expects nothing; everything was measured"
    assert overall([_point("ok")], [], [_check("pass")], declared=True) == ("pass", "every expectation passes")
