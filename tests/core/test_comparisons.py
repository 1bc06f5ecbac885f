"""One benchmark below another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.core.comparisons import comparison_claims, comparison_results
from pybench.core.counts import overall
from pybench.core.measurements import Measurements
from pybench.core.plan import point_id
from pybench.core.schedule import undecided
from pybench.model.suite import AxisValue, Benchmark, Comparison, Effort, Order, Plan, Point, Skip, Suite
from pybench.model.verdict import Counts, Decision
from pybench.model.wire import Work
from tests.build import Build
from tests.builders import with_settings
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.comparisons")


def _suite(order: Order = "below", **more: Any) -> Suite:
    values: dict[str, Any] = {"workload": "generate", "settings": {}, "axes": {}, "effort": Effort()}
    expectation = Comparison(metric="step_s", order=order, other="pipeline", **more)
    return Suite(
        name="s",
        description="",
        benchmarks=(
            Benchmark(name="tensor", **values, expectations=(expectation,)),
            Benchmark(name="pipeline", **values),
        ),
    )


def _point(build: Build, benchmark: str, axis: str, degree: int, batch: int) -> Point:
    axes: dict[str, AxisValue] = {axis: degree, "batch_size": batch}
    own = with_settings(build.generate(benchmark=benchmark), **{"tensor_parallel": 1, **axes})
    return replace(own, id=point_id(benchmark, axes), axes=axes)


def test_points_of_as_many_gpus_and_the_same_work_are_told_against_each_other(build: Build) -> None:
    """Four times the batch in the same time passes, and at the other batch it fails."""
    tensor = [_point(build, "tensor", "tensor_parallel", 2, batch) for batch in (4, 16)]
    pipeline = [_point(build, "pipeline", "pipeline_parallel", 2, batch) for batch in (4, 16)]
    other = _point(build, "pipeline", "pipeline_parallel", 4, 4)
    seconds = {tensor[0].id: 1.0, pipeline[0].id: 2.0, tensor[1].id: 3.0, pipeline[1].id: 2.0, other.id: 9.0}
    points = (*tensor, *pipeline, other)
    records = [record for p in points for record in build.measured(p, [[seconds[p.id]] * 3] * 2)]
    rows = comparison_results(_suite("below"), Measurements.of(Plan(points=points, skips=()), records))
    assert [(row.point_id, row.other_id, row.ratio, row.verdict) for row in rows] == [
        (tensor[0].id, pipeline[0].id, 0.5, "pass"),
        (tensor[1].id, pipeline[1].id, 1.5, "fail"),
    ]
    assert overall((), rows, counts=Counts(expected=2, judged=2, passed=1, failed=1))[0] == "fail"
    above = comparison_results(_suite("above"), Measurements.of(Plan(points=points, skips=()), records))
    assert [(row.order, row.verdict) for row in above] == [("above", "fail"), ("above", "pass")]


def test_what_was_not_measured_has_no_order(build: Build) -> None:
    """Either side's reason is told."""
    one, other = (
        _point(build, "tensor", "tensor_parallel", 2, 4),
        _point(build, "pipeline", "pipeline_parallel", 2, 4),
    )
    skip = Skip(id=other.id, benchmark="pipeline", axes=other.axes, num_gpus=2, reason="no such luck")
    records = build.measured(one, [[1.0]])
    suite = _suite("below")
    (skipped,) = comparison_results(suite, Measurements.of(Plan(points=(one,), skips=(skip,)), records))
    assert (skipped.verdict, skipped.reason, skipped.ratio) == ("missing", "pipeline: no such luck", None)
    (left_out,) = comparison_results(suite, Measurements.of(Plan(points=(one,), skips=(), left_out=(skip,)), records))
    assert left_out.verdict == "no_expectation"
    (failed,) = comparison_results(
        suite, Measurements.of(Plan(points=(one, other), skips=()), [*records, build.failed(other)])
    )
    assert (failed.verdict, failed.reason) == ("error", "pipeline: out_of_memory: 81 GiB asked")


def _pairs_at(build: Build, seconds: dict[int, tuple[float, float]]) -> tuple[Plan, list[Any]]:
    """Tensor's and pipeline's seconds at each batch, in three attempts that differ by a thousandth."""
    points, records = [], []
    for batch, both in seconds.items():
        for name, length in zip(("tensor", "pipeline"), both, strict=True):
            point = _point(build, name, f"{name}_parallel", 2, batch)
            points.append(point)
            records += build.measured(point, [[length * part] * 3 for part in (0.999, 1.0, 1.001)])
    return Plan(points=tuple(points), skips=()), records


@pytest.mark.parametrize(
    ("last", "order", "verdict", "change"),
    [
        ((2.0, 4.0), "below", "pass", 0.5 / 0.8),
        ((3.6, 4.0), "below", "fail", 0.9 / 0.8),
        ((3.2, 4.0), "below", "inconclusive", 1.0),
        ((3.6, 4.0), "above", "pass", 0.9 / 0.8),
    ],
)
def test_an_order_can_have_to_widen(
    build: Build, last: tuple[float, float], order: Order, verdict: str, change: float
) -> None:
    """From 0.8 at the least batch; batches between decide nothing."""
    plan, records = _pairs_at(build, {16: (1.0, 1.0), 64: last, 4: (0.8, 1.0)})
    *_, row = comparison_results(_suite(order, widening_along="batch_size"), Measurements.of(plan, records))
    assert (row.verdict, row.widening_along) == (verdict, "batch_size")
    assert row.ratio == pytest.approx(change)
    points = {point.id: point for point in plan.points}
    assert [points[name].axes["batch_size"] for name in row.point_ids] == [64, 64, 4, 4]
    assert [points[name].benchmark for name in row.point_ids] == ["tensor", "pipeline"] * 2


def test_one_load_cannot_widen(build: Build) -> None:
    """There is nothing to tell it against."""
    plan, records = _pairs_at(build, {4: (0.8, 1.0)})
    (row,) = comparison_results(_suite(widening_along="batch_size"), Measurements.of(plan, records))
    assert row.widening_along is None


def test_an_order_widens_only_between_measured_loads(build: Build) -> None:
    """Either end's reason is told."""
    plan, records = _pairs_at(build, {4: (0.8, 1.0), 64: (1.0, 2.0)})
    gone = plan.points[1].id
    kept = [record for record in records if record.point_id != gone]
    *_, row = comparison_results(_suite("below", widening_along="batch_size"), Measurements.of(plan, kept))
    assert (row.verdict, row.reason, row.ratio) == ("missing", "pipeline: not measured", None)


def test_a_starved_point_is_no_other_to_stay_below(build: Build) -> None:
    """More measuring would not feed it."""
    one = _point(build, "tensor", "tensor_parallel", 2, 4)
    other = _point(build, "pipeline", "pipeline_parallel", 2, 4)
    records = build.measured(one, [[1.0] * 3] * 2) + [
        replace(
            record,
            ranks=tuple(
                replace(rank, steps=tuple(replace(step, values={"num_preemptions": 3.0}) for step in rank.steps))
                for rank in record.ranks
            ),
        )
        for record in build.measured(other, [[2.0] * 3] * 2)
    ]
    plan = Plan(points=(one, other), skips=())
    (row,) = comparison_results(_suite("below"), Measurements.of(plan, records))
    assert (row.verdict, row.flags, row.ratio) == ("inconclusive", ("starved_baseline",), 0.5)
    assert row.reason == SENTENCES["a_starved_point_is_no_other_to_stay"]
    assert undecided(plan.points, [row], records) == ()
    hopeful = replace(row, decision=Decision(num_attempts=2, p_pass=1, p_fail=1, pass_level=0.02, fail_level=0.02))
    assert [point.id for point, _ in undecided(plan.points, [hopeful], records)] == [one.id, other.id]


def test_a_factor_asks_for_more_than_an_order(build: Build) -> None:
    """Half the other's time is below it, and not below 0.4 times it."""
    one = _point(build, "tensor", "tensor_parallel", 2, 4)
    other = _point(build, "pipeline", "pipeline_parallel", 2, 4)
    records = build.measured(one, [[1.0] * 3] * 2) + build.measured(other, [[2.0] * 3] * 2)
    measurements = Measurements.of(Plan(points=(one, other), skips=()), records)
    found = [comparison_results(_suite(factor=factor), measurements)[0] for factor in (1.0, 0.5, 0.4)]
    assert [(row.factor, row.wanted, row.verdict) for row in found] == [
        (1.0, "below", "pass"),
        (0.5, "below 0.5 x", "pass"),
        (0.4, "below 0.4 x", "fail"),
    ]


@pytest.mark.parametrize(
    ("metric", "counts", "verdict", "num_attempts"),
    [
        ("trained_parameters", (9e6,), "pass", 1),
        ("trained_parameters", (10e6,), "pass", 1),
        ("trained_parameters", (11e6,), "fail", 1),
        ("trained_parameters", (11e6, 11e6), "fail", 2),
        ("trained_parameters", (9e6, 11e6), "inconclusive", 2),
        ("step_s", (9e6,), "inconclusive", 1),
    ],
)
def test_one_attempt_decides_a_count(
    build: Build, metric: str, counts: tuple[float, ...], verdict: str, num_attempts: int
) -> None:
    """Half of the other's is the limit. A count that differs between attempts has a spread, as a time has."""
    one, other = (replace(build.train(), id=name, benchmark=name) for name in ("tensor", "pipeline"))
    steps = build.steps([1.0], Work(samples=2))
    records = [
        build.record(point, (build.rank(steps, told={"trained_parameters": count}),), number)
        for point, of_point in ((one, counts), (other, [20e6] * len(counts)))
        for number, count in enumerate(of_point, 1)
    ]
    below = Comparison(metric=metric, order="below", other="pipeline", factor=0.5)
    tensor, pipeline = _suite().benchmarks
    suite = replace(_suite(), benchmarks=(replace(tensor, expectations=(below,)), pipeline))
    (row,) = comparison_results(suite, Measurements.of(Plan(points=(one, other), skips=()), records))
    assert row.decision is not None
    assert (row.verdict, row.decision.num_attempts) == (verdict, num_attempts)


def test_no_ratio_to_nothing(build: Build) -> None:
    """A baseline of 0 tokens is one line, no traceback, and no number of attempts changes it."""
    one = _point(build, "tensor", "tensor_parallel", 2, 4)
    other = _point(build, "pipeline", "pipeline_parallel", 2, 4)
    records = build.measured(one, [[1.0]] * 2) + [
        build.record(other, (build.rank(build.steps([1.0], Work())),), number) for number in (1, 2)
    ]
    suite = _suite()
    tensor = replace(
        suite.benchmarks[0], expectations=(Comparison(metric="output_tokens_per_s", order="below", other="pipeline"),)
    )
    measurements = Measurements.of(Plan(points=(one, other), skips=()), records)
    (row,) = comparison_results(replace(suite, benchmarks=(tensor, suite.benchmarks[1])), measurements)
    assert (row.verdict, row.flags, row.ratio) == ("inconclusive", ("no_ratio",), None)
    assert row.reason == SENTENCES["no_ratio_to_nothing"]
    assert undecided((one, other), [row], records) == ()


@pytest.mark.parametrize(
    ("order", "factor", "state"),
    [("above", 3.0, "kept"), ("above", 300.0, "not kept"), ("below", 5.0, "kept"), ("below", 3.0, "not kept")],
)
def test_a_claimed_factor_is_shown_and_judges_nothing(build: Build, order: Order, factor: float, state: str) -> None:
    """Four times as long, give or take 2 %; one attempt is as clear, by the spread of other runs."""
    one, other = _point(build, "tensor", "tensor_parallel", 2, 4), _point(build, "pipeline", "pipeline_parallel", 2, 4)
    suite = _suite(order, factor=factor, claim="a guide")
    plan = Plan(points=(one, other), skips=())
    records = [*build.measured(one, [[4.0], [4.1], [4.05]]), *build.measured(other, [[1.0], [1.01], [1.02]])]
    records = build.on_card("NVIDIA H200", records)
    assert comparison_results(suite, Measurements.of(plan, records)) == ()
    (claim,) = comparison_claims(suite, Measurements.of(plan, records))
    assert (claim.state, claim.source, claim.table) == (state, "a guide", None)
    assert claim.found.value == pytest.approx(4.0, rel=0.02)
    (alone,) = comparison_claims(suite, Measurements.of(plan, [records[0], records[3]]))
    assert alone.state == state
    assert not list(comparison_claims(suite, Measurements.of(plan, records[:3])))


@pytest.mark.parametrize(
    ("last", "order", "state"),
    [
        ((2.0, 4.0), "below", "kept"),
        ((3.6, 4.0), "below", "not kept"),
        ((3.2, 4.0), "below", "open"),
        ((3.6, 4.0), "above", "kept"),
    ],
)
def test_that_a_distance_widens_can_be_a_claim(
    build: Build, last: tuple[float, float], order: Order, state: str
) -> None:
    """From 0.8 at the least batch; that move is claimed, and nothing of single pairs. Without one end nothing is."""
    plan, records = _pairs_at(build, {16: (1.0, 1.0), 64: last, 4: (0.8, 1.0)})
    suite = _suite(order, widening_along="batch_size", claim="a paper")
    assert comparison_results(suite, Measurements.of(plan, records)) == ()
    (claim,) = comparison_claims(suite, Measurements.of(plan, records))
    assert (claim.state, claim.widening_along) == (state, "batch_size")
    assert claim.found.value == pytest.approx(last[0] / last[1] / 0.8)
    points = {point.id: point for point in plan.points}
    assert [points[name].axes["batch_size"] for name in (claim.point_id, claim.baseline_id or "")] == [64, 64]
    gone = plan.points[-1].id
    kept = [record for record in records if record.point_id != gone]
    assert not list(comparison_claims(suite, Measurements.of(plan, kept)))
