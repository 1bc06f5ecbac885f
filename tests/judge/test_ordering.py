"""One benchmark below another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.compute.plan import point_id
from pybench.judge.ordering import order_results
from pybench.judge.verdict import judge_order, overall
from pybench.model.effort import Effort
from pybench.model.results import Order
from pybench.model.suite import Benchmark, Expectation, Plan, Point, Skip, Suite


def _suite(**order: Any) -> Suite:
    values: dict[str, Any] = {"workload": "generate", "settings": {}, "axes": {}, "effort": Effort()}
    expectation = Expectation(metric="step_s", **order)
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
    rows = order_results(_suite(below="pipeline"), Plan(points=points, skips=()), records)
    assert [(row.point_id, row.other_id, row.ratio, row.verdict) for row in rows] == [
        (tensor[0].id, pipeline[0].id, 0.5, "pass"),
        (tensor[1].id, pipeline[1].id, 1.5, "fail"),
    ]
    assert overall((), (), (), rows, declared=True)[0] == "fail"
    above = order_results(_suite(above="pipeline"), Plan(points=points, skips=()), records)
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
    (skipped,) = order_results(suite, Plan(points=(one,), skips=(skip,)), records)
    assert (skipped.verdict, skipped.reason, skipped.ratio) == ("missing", "other: no such luck", None)
    (left_out,) = order_results(suite, Plan(points=(one,), skips=(), left_out=(skip,)), records)
    assert left_out.verdict == "no_expectation"
    (failed,) = order_results(suite, Plan(points=(one, other), skips=()), [*records, build.failed(other)])
    assert (failed.verdict, failed.reason) == ("error", "other: out_of_memory: 81 GiB asked")


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
