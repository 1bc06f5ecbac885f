"""Intervals against limits, and what decides a run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pybench.core.counts import overall
from pybench.core.statistics.contrast import Contrast
from pybench.core.statistics.distributions import quantile
from pybench.core.verdict import RowStatistics, judge_comparison, judge_ratio, judge_value
from pybench.model.results import CheckResult, PointResult, ScalingResult
from pybench.model.suite import Order, RatioRow, Skip
from pybench.model.verdict import Counts, Expected, Verdict
from tests.builders import CHECK, NODE_CHECK, SCALING
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.verdict")

_EXPECTED = Expected(minimum=1.7, maximum=1.9, source="s", table="t")


_ONE = Counts(expected=1, judged=1, passed=1)
_NONE = Counts()


def _row(**figure: Any) -> RatioRow:
    values: dict[str, Any] = {"machine": "h200", "workload": "generate", "metric": "m", "count": 2, "source": "s"}
    return RatioRow(**{**values, "kind": "measured", **figure})


def _evidence(low: float | None, high: float | None, value: float | None = None) -> RowStatistics:
    """Of three attempts a side, whose 95 % interval decides at 2.5 % a side."""
    if low is None or high is None:
        return RowStatistics(interval=(value or 1.0, None, None), contrast=None, pass_level=0.025, fail_level=0.025)
    sd = math.log(high / low) / 2 / quantile(0.025, 4)
    centre = math.log(high * low) / 2
    contrast = Contrast(value=centre, variance=sd**2, freedom=4, num_attempts=3)
    level = 0.025 * (1 + 1e-6)
    interval = (value or math.exp(centre), low, high)
    return RowStatistics(interval=interval, contrast=contrast, pass_level=level, fail_level=level)


def test_a_reason_has_the_tables_word_for_an_interval_that_shows_nothing() -> None:
    """From a thousandth of the value to 149 times it; also where the limit lies beyond."""
    _, reason, *_ = judge_value(_evidence(1e-3, 149.0, 1.0), "s", None, 2.0)
    assert reason.startswith("found 1 ±over 100x s, allowed at most 2 s; undecided after 3 attempts")
    _, reason, *_ = judge_ratio(_evidence(1e-4, 0.2, 1e-3), replace(_EXPECTED, minimum=0.5), 2.0, more=True)
    assert "found 0.001 ±over 100x" in reason
    _, reason, *_ = judge_value(_evidence(0.01, 9.0, 1.0), "s", None, 2.0)
    assert "found 1 [0.01, 9] s" in reason


def test_an_undecided_gpu_is_not_called_the_slowest() -> None:
    """Other checks keep their names in front."""
    slow = replace(NODE_CHECK, name="slowest", subject="rank 0", point_id="p", verdict="inconclusive", reason="+22%")
    hot = replace(NODE_CHECK, name="temperature", subject="GPU 1", point_id="p", verdict="inconclusive", reason="hot")
    assert overall((), (slow,), counts=_NONE) == ("inconclusive", "p: rank 0: +22%")
    assert overall((), (hot,), counts=_NONE) == ("inconclusive", "temperature: GPU 1: hot")


def test_a_value_is_a_range_of_its_tolerance() -> None:
    """2 give or take a quarter."""
    assert _row(value=2.0, tolerance=0.25).limits == (1.5, 2.5)


def test_a_range_is_taken_as_it_is() -> None:
    """No tolerance on top."""
    assert _row(minimum=1.2, maximum=1.5).limits == (1.2, 1.5)
    assert _row(maximum=1.5).limits == (None, 1.5)


@pytest.mark.parametrize(
    ("low", "high", "verdict", "flags"),
    [
        (1.7, 1.8, "pass", ()),
        (1.95, 2.0, "pass", ("better_than_expected",)),
        (1.5, 1.69, "fail", ()),
        (1.5, 1.71, "inconclusive", ()),
        (1.69, 1.8, "inconclusive", ()),
        (1.4, 2.1, "inconclusive", ()),
        (2.21, 2.3, "inconclusive", ("suspect_baseline",)),
    ],
)
def test_throughput_is_held_to_its_minimum(low: float, high: float, verdict: str, flags: tuple[str, ...]) -> None:
    """Twice the GPUs, 1.7 to 1.9 expected: the edges belong to a pass, and 2 x 1.1 is the superlinear margin."""
    found, _, found_flags, _ = judge_ratio(_evidence(low, high), _EXPECTED, 2, more=True)
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
    found, _, found_flags, _ = judge_ratio(_evidence(low, high), _EXPECTED, 2, more=False)
    assert (found, found_flags) == (verdict, flags)


def test_reasons_say_what_was_expected_and_found() -> None:
    """With the interval; the suspect baseline names what to look for."""
    assert (
        judge_ratio(_evidence(1.5, 1.69, 1.6), _EXPECTED, 2, more=True)[1]
        == "at least 1.7 expected, found 1.6 [1.5, 1.69]"
    )
    assert judge_ratio(_evidence(1.75, 1.9, 1.8), _EXPECTED, 2, more=False)[1].startswith("at most 1.9 expected")
    assert "baseline was held back" in judge_ratio(_evidence(4.5, 4.7, 4.6), _EXPECTED, 2, more=True)[1]


def test_one_attempt_decides_nothing() -> None:
    """Even far below: the spread between runs is unknown."""
    assert judge_ratio(_evidence(None, None, 0.5), _EXPECTED, 2, more=True)[:2] == (
        "inconclusive",
        SENTENCES["one_attempt_decides_nothing"],
    )


def test_without_a_row_nothing_is_judged() -> None:
    """A row without a limit on the deciding side gives no expectation either. A suspect baseline shows all the same."""
    assert judge_ratio(_evidence(1.7, 1.9, 1.8), "no row", 2, more=True)[:2] == ("no_expectation", "no row")
    one_sided = Expected(minimum=None, maximum=1.9, source="s", table="t")
    assert judge_ratio(_evidence(1.7, 1.9, 1.8), one_sided, 2, more=True)[0] == "no_expectation"
    assert judge_ratio(_evidence(4.5, 4.7, 4.6), "no row", 2, more=True)[2] == ("suspect_baseline",)


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
    assert judge_value(_evidence(95.0, 105.0), "tokens/s", minimum, maximum)[0] == verdict


def test_absolute_reasons() -> None:
    """Both limits are shown, with the unit."""
    found = judge_value(_evidence(95.0, 105.0, 100.0), "tokens/s", 90.0, 110.0)
    assert found[1] == SENTENCES["absolute_reasons"]
    assert judge_value(_evidence(None, None), "s", 90.0, None)[0] == "inconclusive"


def test_reasons_have_the_units_and_digits_of_the_tables() -> None:
    """Bytes in GB; of a limit just below the found interval the digit that keeps them apart."""
    found = judge_value(_evidence(51.2e9, 55e9, 53e9), "bytes/s", 51e9, None)[1]
    assert found == SENTENCES["reasons_have_the_units_and_digits_of"]
    expected = Expected(minimum=1.586, maximum=None, source="s", table="t")
    assert judge_ratio(_evidence(1.5851, 1.704, 1.643), expected, 2, more=True)[1].startswith(
        "at least 1.586 expected, found 1.643 [1.585, 1.704]; "
    )


def test_an_open_row_says_what_it_would_take() -> None:
    """The interval, the attempts that were used, and about how many would decide it: 5 % off with 9.7 % in three."""
    verdict, reason, _, decision = judge_value(_evidence(95.0, 116.0, 105.0), "s", 100.0, None)
    assert verdict == "inconclusive"
    assert reason.startswith("found 105 [95, 116] s, allowed at least 100 s; undecided after 3 attempts; about ")
    assert decision is not None
    assert decision.attempts_to_decide is not None
    assert 6 <= decision.attempts_to_decide <= 10
    assert reason.endswith(f"about {decision.attempts_to_decide} would decide it")


def test_an_open_row_whose_plain_interval_keeps_clear_shows_the_one_that_decides() -> None:
    """95 % keeps clear of the limit, the look's stricter level does not."""
    strict = replace(_evidence(95.0, 99.0, 97.0), pass_level=0.005, fail_level=0.004)
    verdict, reason, *_ = judge_value(strict, "s", None, 100.0)
    assert verdict == "inconclusive"
    assert reason.startswith("found 97 [95, 99] s, allowed at most 100 s; at this look's level [93.51, 100.6], ")
    assert "look" not in judge_value(strict, "s", None, 98.0)[1]


def test_a_fail_that_three_times_the_usual_spread_leaves_open_shows_that_interval() -> None:
    """The usual spread is enough for a pass, whose reason shows no other interval."""
    usual = replace(
        _evidence(95.0, 99.0, 97.0), num_points=9, by_other_runs=True, fails_by=_evidence(91.0, 103.4).contrast
    )
    verdict, reason, *_ = judge_value(usual, "s", 100.0, None)
    assert verdict == "inconclusive"
    assert "by the spread of other runs; at this look's level and 3 times that spread [91, 103.4], undecided" in reason
    assert judge_value(usual, "s", None, 100.0)[0] == "pass"


@pytest.mark.parametrize(
    ("low", "high", "order", "verdict"),
    [
        (0.8, 0.9, "below", "pass"),
        (0.9, 1.0, "below", "pass"),
        (0.9, 1.1, "below", "inconclusive"),
        (1.1, 1.2, "below", "fail"),
        (1.1, 1.2, "above", "pass"),
        (0.9, 1.1, "above", "inconclusive"),
        (0.8, 0.9, "above", "fail"),
        (None, None, "above", "inconclusive"),
    ],
)
def test_comparisons_are_decided_by_their_interval(
    low: float | None, high: float | None, order: Order, verdict: str
) -> None:
    """Equal is below enough."""
    assert judge_comparison(_evidence(low, high), order)[0] == verdict


def test_a_comparison_can_ask_for_a_factor() -> None:
    """Twice the other: 2.1 to 2.2 passes, 1.1 to 1.2 does not."""
    assert judge_comparison(_evidence(2.1, 2.2), "above", 2.0)[0] == "pass"
    verdict, reason, *_ = judge_comparison(_evidence(1.1, 1.2, 1.15), "above", 2.0)
    assert (verdict, reason) == ("fail", SENTENCES["a_comparison_can_ask_for_a_factor"])


def _scaling(verdict: Verdict) -> ScalingResult:
    return replace(SCALING, benchmark="b", metric="m", verdict=verdict, reason=f"it is {verdict}")


def _check(verdict: Verdict) -> CheckResult:
    return replace(CHECK, benchmark="b", metric="m", point_id="p", verdict=verdict, reason="r")


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
    counts = Counts(expected=len(verdicts), passed=verdicts.count("pass"))
    assert overall([_point("ok")], rows, counts=counts)[0] == expected


def test_the_first_culprit_is_named_and_the_others_counted() -> None:
    """One line for a terminal."""
    rows = [_scaling("pass"), _scaling("fail"), _scaling("fail")]
    assert overall([_point("ok")], rows, counts=_ONE) == ("fail", SENTENCES["the_first_culprit_is_named_and_the"])
    assert overall([_point("ok")], [_check("fail")], counts=_ONE) == ("fail", "p: m: r")


def test_points_count_without_any_expectation() -> None:
    """A worker that broke is an error, a point not measured is missing; a skip was never owed."""
    assert overall([_point("ok"), _point("failed")], [], counts=_NONE) == ("error", "p: is failed")
    assert overall([_point("ok"), _point("missing")], [], counts=_NONE) == ("missing", "p: is missing")
    assert overall([_point("skipped")], [], counts=_NONE) == ("missing", "nothing was measured")
    owed = overall([_point("ok"), _point("missing")], [], counts=_NONE, num_owed=2)
    assert owed == ("missing", "2 attempts to be made"), "those of the missing point among them"


def test_a_skip_that_was_required_is_missing() -> None:
    """Whatever else passed, and whether or not a row needs it; a point that can run nowhere does not count."""
    skip = Skip(id="p8", benchmark="b", axes={}, num_gpus=8, reason="needs 8 GPUs, found 4", lacks="8 GPUs (4 here)")
    counts = Counts(expected=1, judged=1, passed=1)
    found = overall([_point("ok")], [_check("pass")], counts=counts, skips=[skip])
    assert found == ("missing", "p8: needs 8 GPUs, found 4")
    never = replace(skip, lacks=None)
    assert overall([_point("ok")], [_check("pass")], counts=counts, skips=[never])[0] == "pass"


def test_nothing_judged_is_no_pass() -> None:
    """Measured is not the same as shown to be right."""
    rows = [_scaling("no_expectation")]
    unknown = Counts(expected=1, without_figure=1)
    verdict, reason = overall([_point("ok")], rows, counts=unknown, machine="h100")
    assert (verdict, reason) == (
        "no_expectation",
        SENTENCES["nothing_judged_is_no_pass"],
    )


def test_of_points_without_expectations_the_verdict_says_what_was_left_out() -> None:
    """The suite may expect something of those; then not everything was measured."""
    assert overall([_point("ok")], [], counts=_NONE)[1] == SENTENCES["of_points_without_expectations_the"]
    left_out = ("2 GPUs (--max-gpus 1)", "4 GPUs (--max-gpus 1)")
    assert (
        overall([_point("ok")], [], counts=_NONE, left_out=left_out)[1]
        == SENTENCES["of_points_without_expectations_the_2"]
    )


def test_a_run_that_left_everything_out_is_no_pass() -> None:
    """Nor a shortfall: nothing was required."""
    left_out = ("8 GPUs (1 here)", "vllm (not installed)")
    assert overall([_point("skipped")], [], counts=_NONE, left_out=left_out) == (
        "no_expectation",
        SENTENCES["a_run_that_left_everything_out_is_no"],
    )


def test_a_run_of_points_that_cannot_be_measured_here_names_one() -> None:
    """The reason names it rather than points left out on purpose."""
    skips = [
        Skip(id=name, benchmark="b", axes={}, num_gpus=1, reason="needs about 312 GiB of host memory, of 126 GiB")
        for name in ("p", "q")
    ]
    found = overall([_point("skipped")] * 2, [], counts=_NONE, left_out=("2 GPUs (--max-gpus 1)",), skips=skips)
    assert found == (
        "missing",
        SENTENCES["a_run_of_points_that_cannot_be"],
    )
    assert overall([_point("ok")], [], counts=_NONE, skips=skips)[0] == "no_expectation"


def test_a_pass_says_how_much_was_judged() -> None:
    """Six of eight."""
    counts = Counts(expected=8, judged=6, passed=6, without_figure=2)
    left_out = ("8 GPUs (4 here)",)
    assert overall([_point("ok")], [_check("pass")], counts=counts, machine="h100", left_out=left_out) == (
        "pass",
        SENTENCES["a_pass_says_how_much_was_judged"],
    )


@pytest.mark.parametrize(
    ("left_out", "text"),
    [
        (("4 GPUs (2 here)",), "3 left out: 4 GPUs (2 here)"),
        (("2 GPUs (1 here)", "4 GPUs (1 here)"), "3 left out: 2 GPUs, 4 GPUs (1 here)"),
        (
            ("4 GPUs (2 here)", "transformers (not installed)", "vllm (not installed)"),
            "3 left out: 4 GPUs (2 here); transformers, vllm (not installed)",
        ),
        (
            ("4 GPUs (2 here)", "8 GPUs (2 here)", "vllm (not installed)", "deepspeed (not installed)", "x"),
            "3 left out: 4 GPUs, 8 GPUs (2 here); vllm (not installed) (and 2 more)",
        ),
        (("a needs 2 gpus, found 1", "b needs 2 gpus, found 1"), "3 left out: a needs 2 gpus, found 1; b needs 2"),
    ],
)
def test_the_last_line_names_three_things_that_were_left_out(left_out: tuple[str, ...], text: str) -> None:
    """A shared reason appears once; further ones are counted, and the table of points that were not run has all."""
    counts = Counts(expected=5, judged=2, passed=2, left_out=3)
    verdict, reason = overall([_point("ok")], [_check("pass")], counts=counts, left_out=left_out)
    assert verdict == "pass"
    assert reason.startswith(f"2 of 5 expectations judged; {text}")
    assert overall([_point("ok")], [], counts=counts, left_out=left_out)[1] == reason
