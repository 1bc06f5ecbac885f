"""One benchmark below another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.compute.plan import point_id
from pybench.compute.schedule import undecided
from pybench.judge.measurements import Measurements
from pybench.judge.ordering import order_results
from pybench.judge.verdict import judge_order, overall
from pybench.model.effort import Effort
from pybench.model.suite import Benchmark, Expectation, Order, Plan, Point, Skip, Suite


def _suite(**order: Any) -> Suite:
    values: dict[str, Any] = {"workload": "generate", "settings": {}, "axes": {}, "effort": Effort()}
    expectation = Expectation(**{"metric": "step_s", **order})
    return Suite(
        name="s",
        description="",
        benchmarks=(
            Benchmark(name="tensor", **values, expectations=(expectation,)),
            Benchmark(name="pipeline", **values),
        ),
    )


def _point(build: Any, benchmark: str, axis: str, degree: int, batch: int) -> Point:
    axes = {axis: degree, "batch_size": batch}
    own = build.generate(benchmark=benchmark)
    settings = replace(own.settings, **{"tensor_parallel": 1, **axes})
    point: Point = replace(own, id=point_id(benchmark, axes), axes=axes, settings=settings)
    return point


def test_points_of_as_many_gpus_and_the_same_work_are_told_against_each_other(build: Any) -> None:
    """Four times the batch in the same time passes, and at the other batch it fails."""
    tensor = [_point(build, "tensor", "tensor_parallel", 2, batch) for batch in (4, 16)]
    pipeline = [_point(build, "pipeline", "pipeline_parallel", 2, batch) for batch in (4, 16)]
    other = _point(build, "pipeline", "pipeline_parallel", 4, 4)
    seconds = {tensor[0].id: 1.0, pipeline[0].id: 2.0, tensor[1].id: 3.0, pipeline[1].id: 2.0, other.id: 9.0}
    points = (*tensor, *pipeline, other)
    records = [record for p in points for record in build.measured(p, [[seconds[p.id]] * 3] * 2)]
    rows = order_results(_suite(below="pipeline"), Measurements.of(Plan(points=points, skips=()), records))
    assert [(row.point_id, row.other_id, row.ratio, row.verdict) for row in rows] == [
        (tensor[0].id, pipeline[0].id, 0.5, "pass"),
        (tensor[1].id, pipeline[1].id, 1.5, "fail"),
    ]
    assert overall((), (), (), rows, declared=True)[0] == "fail"
    above = order_results(_suite(above="pipeline"), Measurements.of(Plan(points=points, skips=()), records))
    assert [(row.order, row.verdict) for row in above] == [("above", "fail"), ("above", "pass")]


def test_what_was_not_measured_has_no_order(build: Any) -> None:
    """Either side's reason is told."""
    one, other = (
        _point(build, "tensor", "tensor_parallel", 2, 4),
        _point(build, "pipeline", "pipeline_parallel", 2, 4),
    )
    skip = Skip(id=other.id, benchmark="pipeline", axes=other.axes, num_gpus=2, reason="no such luck")
    records = build.measured(one, [[1.0]])
    suite = _suite(below="pipeline")
    (skipped,) = order_results(suite, Measurements.of(Plan(points=(one,), skips=(skip,)), records))
    assert (skipped.verdict, skipped.reason, skipped.ratio) == ("missing", "other: no such luck", None)
    (left_out,) = order_results(suite, Measurements.of(Plan(points=(one,), skips=(), left_out=(skip,)), records))
    assert left_out.verdict == "no_expectation"
    (failed,) = order_results(
        suite, Measurements.of(Plan(points=(one, other), skips=()), [*records, build.failed(other)])
    )
    assert (failed.verdict, failed.reason) == ("error", "other: out_of_memory: 81 GiB asked")


def _pairs_at(build: Any, seconds: dict[int, tuple[float, float]]) -> tuple[Plan, list[Any]]:
    """Tensor's and pipeline's seconds at each batch, in three attempts a thousandth apart."""
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
        ((2.0, 4.0), {"below": "pipeline"}, "pass", 0.5 / 0.8),
        ((3.6, 4.0), {"below": "pipeline"}, "fail", 0.9 / 0.8),
        ((3.2, 4.0), {"below": "pipeline"}, "inconclusive", 1.0),
        ((3.6, 4.0), {"above": "pipeline"}, "pass", 0.9 / 0.8),
    ],
)
def test_an_order_can_have_to_widen(
    build: Any, last: tuple[float, float], order: dict[str, str], verdict: str, change: float
) -> None:
    """From 0.8 at the least batch; what lies between decides nothing."""
    plan, records = _pairs_at(build, {16: (1.0, 1.0), 64: last, 4: (0.8, 1.0)})
    *_, row = order_results(_suite(**order, widening_along="batch_size"), Measurements.of(plan, records))
    assert (row.verdict, row.widening_along) == (verdict, "batch_size")
    assert row.ratio == pytest.approx(change)
    points = {point.id: point for point in plan.points}
    assert [points[name].axes["batch_size"] for name in row.point_ids] == [64, 64, 4, 4]
    assert [points[name].benchmark for name in row.point_ids] == ["tensor", "pipeline"] * 2


def test_one_load_cannot_widen(build: Any) -> None:
    """There is nothing to tell it against."""
    plan, records = _pairs_at(build, {4: (0.8, 1.0)})
    (row,) = order_results(_suite(below="pipeline", widening_along="batch_size"), Measurements.of(plan, records))
    assert row.widening_along is None


def test_an_order_widens_only_between_measured_loads(build: Any) -> None:
    """Either end's reason is told."""
    plan, records = _pairs_at(build, {4: (0.8, 1.0), 64: (1.0, 2.0)})
    gone = plan.points[1].id
    kept = [record for record in records if record.point_id != gone]
    *_, row = order_results(_suite(below="pipeline", widening_along="batch_size"), Measurements.of(plan, kept))
    assert (row.verdict, row.reason, row.ratio) == ("missing", "other: not measured", None)


def test_a_starved_point_is_no_other_to_stay_below(build: Any) -> None:
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
    (row,) = order_results(_suite(below="pipeline"), Measurements.of(plan, records))
    assert (row.verdict, row.flags, row.ratio) == ("inconclusive", ("starved_baseline",), 0.5)
    assert row.reason == "no valid other: 3 preemptions in a step for want of key-value cache"
    assert undecided(plan.points, (), (), records, [row]) == ()
    hopeful = replace(row, flags=())
    assert [point.id for point, _ in undecided(plan.points, (), (), records, [hopeful])] == [one.id, other.id]


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
def test_the_interval_decides(low: float | None, high: float | None, order: Order, verdict: str) -> None:
    """Equal is below enough."""
    assert judge_order(1.0, low, high, order)[0] == verdict
