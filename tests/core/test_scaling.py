"""Speedup and efficiency against the baseline point, and the table's row for a machine."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pybench.core.absolute import absolute_checks
from pybench.core.assemble import assemble
from pybench.core.counts import count
from pybench.core.lookup import Context, ratio_row
from pybench.core.measurements import Measurements
from pybench.core.scaling import missing_part, scaling_claims, scaling_results
from pybench.core.summary import summarize
from pybench.core.verdict import row_statistics
from pybench.model.machine import Network, nvls_of
from pybench.model.manifest import Manifest, PlanOptions
from pybench.model.results import ScalingResult
from pybench.model.suite import (
    AxisValue,
    Benchmark,
    Effort,
    Expectation,
    ExpectedRow,
    ExpectedTable,
    FigureRow,
    Limits,
    Plan,
    Point,
    RatioRow,
    Scaling,
    Skip,
    Suite,
)
from pybench.model.verdict import Prediction
from pybench.model.wire import Work
from pybench.model.workloads.train import Train
from tests.api import judged, suite_of
from tests.build import Build
from tests.builders import H200, MANIFEST, with_attempts
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.scaling")

_STRONG = Scaling(metric="output_tokens_per_s", scaling="strong", along="tensor_parallel", table="t")
_ENERGY = dataclasses.replace(_STRONG, metric="energy_j_per_output_token")


def _row(**keys: Any) -> RatioRow:
    values: dict[str, Any] = {
        "machine": "any",
        "workload": "generate",
        "metric": "output_tokens_per_s",
        "count": 2,
        "source": "a source",
        "kind": "measured",
        "value": 1.8,
    }
    return RatioRow(**{**values, **keys})


def _table(*rows: ExpectedRow) -> ExpectedTable:
    return ExpectedTable(name="t", description="", rows=rows)


def _suite(*expectations: Expectation, counts: tuple[int, ...] = (1, 2, 4)) -> Suite:
    benchmark = Benchmark(
        name="decode",
        workload="generate",
        settings={"backend": "torch", "model": "m"},
        axes={"tensor_parallel": counts},
        effort=Effort(),
        expectations=expectations,
    )
    return suite_of(benchmark)


def _skip(count: int, reason: str) -> Skip:
    identity = f"decode[tensor_parallel={count}]"
    return Skip(id=identity, benchmark="decode", axes={"tensor_parallel": count}, num_gpus=count, reason=reason)


def _measured(build: Build, steps: dict[int, list[list[float]]]) -> tuple[Plan, list[Any]]:
    points = {count: build.generate(count) for count in steps}
    records = [record for count, lengths in steps.items() for record in build.measured(points[count], lengths)]
    return Plan(points=tuple(points.values()), skips=()), records


def test_speedup_and_efficiency_by_hand(build: Build) -> None:
    """4 s on one GPU, 2.5 s on two, 2 s on four: 1.6x and 2x, efficiency 0.8 and 0.5. The baseline is no row."""
    plan, records = _measured(build, {1: [[4.0], [4.0]], 2: [[2.5], [2.5]], 4: [[2.0], [2.0]]})
    table = _table(_row(value=1.8), _row(count=4, minimum=1.5, value=None))
    two, four = scaling_results(_suite(_STRONG), Measurements.of(plan, records), {"t": table}, build.machine())
    assert (two.count, two.baseline_count, two.point_id) == (2, 1, "decode[tensor_parallel=2]")
    assert (two.speedup, two.efficiency) == pytest.approx((1.6, 0.8))
    assert (two.verdict, four.verdict) == ("fail", "pass")
    assert (four.speedup, four.efficiency) == pytest.approx((2.0, 0.5))
    assert two.expected is not None
    assert (two.expected.minimum, two.expected.maximum) == pytest.approx((1.71, 1.89))
    assert (two.expected.source, two.expected.table) == ("a source", "t")


def test_a_baseline_above_one_gpu(build: Build) -> None:
    """Against two GPUs, four at 1.25x have an efficiency of 0.625; one GPU is below the baseline and no row."""
    plan, records = _measured(build, {1: [[4.0], [4.0]], 2: [[2.5], [2.5]], 4: [[2.0], [2.0]]})
    suite = _suite(dataclasses.replace(_STRONG, baseline=2))
    table = _table(_row(count=4, baseline_count=2, value=1.25), _row(count=4, value=3.9))
    (four,) = scaling_results(suite, Measurements.of(plan, records), {"t": table}, build.machine())
    assert (four.speedup, four.efficiency) == pytest.approx((1.25, 0.625))
    assert four.verdict == "pass"


def _over_nodes(build: Build, network: Network | None, *rows: RatioRow) -> list[Any]:
    """Training on one node of two GPUs and on two, whose replicas fill them: 4 s and 2.5 s."""
    points = {}
    for nodes in (1, 2):
        point = build.train(2 * nodes)
        assert isinstance(point.settings, Train)
        settings = dataclasses.replace(point.settings, nodes=nodes)
        axes: dict[str, AxisValue] = {"nodes": nodes, "data_parallel": 2 * nodes}
        points[nodes] = dataclasses.replace(point, id=f"train[nodes={nodes}]", axes=axes, settings=settings)
    records = [*build.measured(points[1], [[4.0], [4.0]]), *build.measured(points[2], [[2.5], [2.5]])]
    along = Scaling(metric="step_s", scaling="strong", along="nodes", table="t")
    benchmark = Benchmark(
        name="fit",
        workload="train",
        settings={"backend": "torch", "model": "m", "data_parallel": "rest"},
        axes={"nodes": (1, 2)},
        effort=Effort(),
        expectations=(along,),
    )
    machine = dataclasses.replace(build.machine(), network=network)
    plan = Plan(points=tuple(points.values()), skips=())
    suite = suite_of(benchmark)
    return list(scaling_results(suite, Measurements.of(plan, records), {"t": _table(*rows)}, machine))


def test_scaling_along_nodes_is_judged_by_what_joins_them(build: Build) -> None:
    """Two nodes of two GPUs over one: a row of 4 GPUs over 2, of two nodes and their network, and no other."""
    of_nodes = _row(workload="train", metric="step_s", count=4, baseline_count=2, nodes=2, value=0.625)
    over_ib = dataclasses.replace(of_nodes, fabric="infiniband")
    beside = dataclasses.replace(of_nodes, fabric="nvlink", nodes=1, value=0.5)
    (found,) = _over_nodes(build, "infiniband", over_ib, beside)
    assert (found.baseline_count, found.count, found.verdict) == (1, 2, "pass")
    assert found.speedup == pytest.approx(0.625)
    (other,) = _over_nodes(build, "ethernet", over_ib, beside)
    assert (other.verdict, other.expected) == ("no_expectation", None)
    assert other.reason == SENTENCES["scaling_along_nodes_is_judged_by"]
    (unknown,) = _over_nodes(build, None, over_ib, beside)
    assert unknown.reason.startswith("what joins the 2 nodes is not known: a table's row is for infiniband, roce")


def test_weak_scaling_of_training(build: Build) -> None:
    """Two GPUs train twice the samples in 2.5 s instead of 2 s: 1.6x the tokens, efficiency 0.8."""
    from pybench.model.wire import Work  # noqa: PLC0415

    one, two = build.train(1), build.train(2)
    records = [
        build.record(point, (build.rank(build.steps([length], Work(samples=samples))),), number)
        for point, length, samples in ((one, 2.0, 2), (two, 2.5, 4))
        for number in (1, 2)
    ]
    expectation = Scaling(metric="tokens_per_s", scaling="weak", along="data_parallel", table="t")
    benchmark = Benchmark(
        name="fit",
        workload="train",
        settings={"backend": "torch", "model": "m"},
        axes={"data_parallel": (1, 2)},
        effort=Effort(),
        expectations=(expectation,),
    )
    suite = suite_of(benchmark)
    plan = Plan(points=(one, two), skips=())
    (row,) = scaling_results(suite, Measurements.of(plan, records), {"t": _table()}, build.machine())
    assert (row.speedup, row.efficiency) == pytest.approx((1.6, 0.8))
    assert (row.scaling, row.verdict) == ("weak", "no_expectation")
    assert row.reason == SENTENCES["weak_scaling_of_training"]
    alone = dataclasses.replace(benchmark, expectations=(dataclasses.replace(expectation, table=None),))
    suite = dataclasses.replace(suite, benchmarks=(alone,))
    (row,) = scaling_results(suite, Measurements.of(plan, records), {}, build.machine())
    assert row.reason == SENTENCES["weak_scaling_of_training_2"]


def test_energy_has_a_ratio_and_no_efficiency(build: Build) -> None:
    """30 J instead of 20 J for the same tokens: 1.5x, at most 1.6 allowed."""
    one, two = build.generate(1), build.generate(2)
    records = [
        *build.measured(one, [[1.0], [1.0]], energy=build.energy([20.0], 1.0)),
        *build.measured(two, [[1.0], [1.0]], energy=build.energy([15.0, 15.0], 1.0)),
    ]
    table = _table(_row(metric="energy_j_per_output_token", value=None, maximum=1.6))
    plan = Plan(points=(one, two), skips=())
    (row,) = scaling_results(
        _suite(_ENERGY, counts=(1, 2)), Measurements.of(plan, records), {"t": table}, build.machine()
    )
    assert row.speedup == pytest.approx(1.5)
    assert row.efficiency is None
    assert row.verdict == "pass"


def test_unknown_energy_that_nothing_would_judge_is_no_shortfall(build: Build) -> None:
    """On a CPU without a sensor the run can still pass; with a row for it, the metric is missing."""
    one, two = build.generate(1), build.generate(2)
    records = [r for p in (one, two) for r in build.measured(p, [[1.0], [1.0]], energy_reason="no GPU takes part")]
    plan, suite, machine = Plan(points=(one, two), skips=()), _suite(_ENERGY, counts=(1, 2)), build.machine("cpu")
    (row,) = scaling_results(suite, Measurements.of(plan, records), {"t": _table()}, machine)
    assert (row.verdict, row.reason) == ("no_expectation", "no GPU takes part")
    table = _table(_row(metric="energy_j_per_output_token", value=1.5))
    (row,) = scaling_results(suite, Measurements.of(plan, records), {"t": table}, machine)
    assert (row.verdict, row.reason) == ("missing", "no GPU takes part")


def test_a_metric_that_is_not_measured_here_lacks_no_row(build: Build) -> None:
    """Without a driver joules are not measured; the throughput of the same points has no row."""
    points = tuple(with_attempts(build.generate(count), 2) for count in (1, 2))
    records = [r for p in points for r in build.measured(p, [[1.0], [1.0]], energy_reason="no driver")]
    suite, plan = _suite(_ENERGY, _STRONG, counts=(1, 2)), Plan(points=points, skips=())
    manifest = dataclasses.replace(_manifest(build, plan), suite=suite, tables={"t": _table()})
    results = assemble(manifest, Measurements.of(plan, records))
    assert [row.verdict for row in results.scaling] == ["no_expectation"] * 2
    assert (results.counts.missing, results.counts.without_figure) == (1, 1)
    assert results.reason == SENTENCES["a_metric_that_is_not_measured_here"]


def test_points_that_were_not_measured_are_rows(build: Build) -> None:
    """A skip and a point without records are missing, one the user left out is not, a broken one is an error."""
    one, two, three = build.generate(1), build.generate(2), build.generate(4)
    plan = Plan(
        points=(one, two, three),
        skips=(_skip(8, "needs 8 GPUs, found 4"),),
        left_out=(_skip(16, "left out by --max-gpus 8"),),
    )
    records = [*build.measured(one, [[1.0], [1.0]]), build.failed(two)]
    suite = _suite(_STRONG, counts=(1, 2, 4, 8, 16))
    rows = scaling_results(suite, Measurements.of(plan, records), {"t": _table(_row(), _row(count=4))}, build.machine())
    assert [(row.count, row.verdict, row.reason) for row in rows] == [
        (2, "error", "out_of_memory: 81 GiB asked"),
        (4, "missing", "not measured"),
        (8, "missing", "needs 8 GPUs, found 4"),
        (16, "no_expectation", "left out by --max-gpus 8"),
    ]
    assert all(row.speedup is None and row.efficiency is None for row in rows)


def test_a_broken_baseline_breaks_its_rows_and_says_so(build: Build) -> None:
    """The reason names the baseline, not the point."""
    one, two = build.generate(1), build.generate(2)
    records = [build.failed(one), *build.measured(two, [[1.0], [1.0]])]
    plan = Plan(points=(one, two), skips=())
    (row,) = scaling_results(_suite(_STRONG), Measurements.of(plan, records), {"t": _table(_row())}, build.machine())
    assert (row.verdict, row.reason) == ("error", "baseline: out_of_memory: 81 GiB asked")
    assert row.baseline_id == "decode[tensor_parallel=1]"


@pytest.mark.parametrize("baseline", [None, 1])
def test_a_baseline_that_was_filtered_out_is_not_replaced(build: Build, baseline: int | None) -> None:
    """With ``-k`` on 2 and 4 alone, two GPUs must not quietly become the baseline."""
    plan, records = _measured(build, {2: [[2.5], [2.5]], 4: [[2.0], [2.0]]})
    suite = _suite(dataclasses.replace(_STRONG, baseline=baseline))
    rows = scaling_results(suite, Measurements.of(plan, records), {"t": _table(_row())}, build.machine())
    assert [(row.count, row.baseline_count, row.verdict) for row in rows] == [
        (2, 1, "no_expectation"),
        (4, 1, "no_expectation"),
    ]
    assert rows[0].reason == SENTENCES["filter"]


def test_counts_are_the_axis_own_where_another_degree_is_fixed(build: Build) -> None:
    """With data_parallel fixed at 2, tensor_parallel 1 and 2 occupy 2 and 4 GPUs; the axis counts 1 and 2."""
    one, two = build.generate(1, data_parallel=2), build.generate(2, data_parallel=2)
    records = [r for p, s in ((one, 4.0), (two, 2.5)) for r in build.measured(p, [[s], [s]])]
    suite = _suite(dataclasses.replace(_STRONG, baseline=1), counts=(1, 2))
    (row,) = scaling_results(
        suite, Measurements.of(Plan(points=(one, two), skips=()), records), {"t": _table()}, build.machine()
    )
    assert (row.count, row.baseline_count) == (2, 1)
    assert row.efficiency == pytest.approx(0.8)


def test_each_group_of_other_axes_has_its_own_baseline(build: Build) -> None:
    """Batch 1 is slower than batch 2, and neither is measured against the other."""

    def at(count: int, batch: int) -> Point:
        point: Point = build.generate(count)
        axes = {"batch_size": batch, **point.axes}
        return dataclasses.replace(point, axes=axes, id=f"decode[batch_size={batch},tensor_parallel={count}]")

    points = {(count, batch): at(count, batch) for batch in (1, 2) for count in (1, 2)}
    seconds = {(1, 1): 8.0, (2, 1): 5.0, (1, 2): 4.0, (2, 2): 2.0}
    records = [r for key, point in points.items() for r in build.measured(point, [[seconds[key]], [seconds[key]]])]
    plan = Plan(points=tuple(points.values()), skips=())
    rows = scaling_results(_suite(_STRONG), Measurements.of(plan, records), {"t": _table()}, build.machine())
    assert [(row.group, row.speedup) for row in rows] == [({"batch_size": 1}, 1.6), ({"batch_size": 2}, 2.0)]


def test_a_starved_baseline_is_suspect(build: Build) -> None:
    """4.6x on two GPUs: one GPU had no room for its cache."""
    plan, records = _measured(build, {1: [[4.6], [4.6]], 2: [[1.0], [1.0]]})
    (row,) = scaling_results(_suite(_STRONG), Measurements.of(plan, records), {"t": _table(_row())}, build.machine())
    assert (row.verdict, row.flags) == ("inconclusive", ("suspect_baseline",))


_WANTED: dict[str, Any] = {
    "machine": "h200",
    "fabric": "nvlink",
    "backend": "torch",
    "model_class": "8b",
    "workload": "generate",
    "metric": "output_tokens_per_s",
    "settings": {"batch_size": 4, "prefix_caching": False},
}


def _source(table: ExpectedTable, count: int = 2, baseline: int = 1, **keys: Any) -> str | None:
    row = ratio_row(table, Context(**{**_WANTED, **keys}), count, baseline)
    return row.source if row else None


def test_the_closest_row_wins() -> None:
    """The machine first, then the number of keys, then how the figure is known."""
    table = _table(
        _row(source="any", fabric="nvlink", backend="torch", model_class="8b"),
        _row(source="gpu", machine="gpu"),
        _row(source="h200", machine="h200"),
        _row(source="h200 8b published", machine="h200", model_class="8b", kind="published"),
        _row(source="h200 8b", machine="h200", model_class="8b"),
    )
    assert _source(table) == "h200 8b"
    assert _source(table, model_class="70b") == "h200"
    assert _source(table, machine="a100") == "gpu"
    assert _source(table, machine="cpu") == "any"


@pytest.mark.parametrize(
    "keys",
    [
        {"machine": "h100"},
        {"fabric": "pcie"},
        {"backend": "vllm"},
        {"model_class": "70b"},
        {"workload": "train"},
        {"metric": "tpot_s"},
        {"count": 4},
        {"baseline": 2},
    ],
)
def test_a_row_of_something_else_does_not_match(keys: dict[str, Any]) -> None:
    """Every key that is spelled out must be met."""
    table = _table(_row(machine="h200", fabric="nvlink", backend="torch", model_class="8b"))
    assert _source(table) == "a source"
    assert _source(table, **keys) is None


def test_a_row_with_settings_holds_for_points_that_have_them() -> None:
    """Of two matching rows, the one with more named settings wins, whatever its machine; a row without any fits all."""
    table = _table(
        _row(source="h200", machine="h200", fabric="nvlink"),
        _row(source="4", where={"batch_size": 4}),
        _row(source="4 cached", where={"batch_size": 4, "prefix_caching": True}),
        _row(source="8", machine="h200", where={"batch_size": 8}),
    )
    assert _source(table) == "4"
    assert _source(table, settings={"batch_size": 4, "prefix_caching": True}) == "4 cached"
    assert _source(table, settings={"batch_size": 8}) == "8"
    assert _source(table, settings={"batch_size": 16}) == "h200"


def test_a_skipped_point_is_shown_what_holds_for_its_settings(build: Build) -> None:
    """Settings of its benchmark, its axes, and defaults."""
    plan, records = _measured(build, {1: [[4.0], [4.0]]})
    plan = dataclasses.replace(plan, skips=(_skip(2, "needs 2 GPUs, found 1"),))
    table = _table(
        _row(value=1.7),
        _row(value=1.8, where={"tensor_parallel": 2, "dtype": "bfloat16", "model": "m"}),
        _row(value=1.9, where={"tensor_parallel": 2, "dtype": "float16", "model": "m", "backend": "torch"}),
    )
    suite = _suite(_STRONG, counts=(1, 2))
    (row,) = scaling_results(suite, Measurements.of(plan, records), {"t": table}, build.machine())
    assert row.verdict == "missing"
    assert row.expected is not None
    assert row.expected.minimum == pytest.approx(1.8 * 0.95)


def test_claims_judge_nothing(build: Build) -> None:
    """A guide's 1.8 on two GPUs, where 1.6 was measured: not kept, and no expectation of this machine."""
    plan, records = _measured(build, {1: [[4.0], [4.0]], 2: [[2.5], [2.5]]})
    table = _table(_row(source="a guide", machine="gpu", kind="claim"))
    assert _source(table) is None
    suite, measurements = _suite(_STRONG, counts=(1, 2)), Measurements.of(plan, records)
    rows = scaling_results(suite, measurements, {"t": table}, build.machine())
    assert [(row.verdict, row.expected) for row in rows] == [("no_expectation", None)]
    (claim,) = scaling_claims(suite, measurements, {"t": table}, build.machine(), rows)
    assert (claim.state, claim.source, claim.found.value) == ("not kept", "a guide", 1.6)
    assert (claim.point_id, claim.baseline_id) == ("decode[tensor_parallel=2]", "decode[tensor_parallel=1]")
    assert not list(scaling_claims(suite, measurements, {"t": table}, build.machine("cpu"), rows))


def test_absolute_figures_are_no_ratios() -> None:
    """A throughput in tokens/s must never be taken for a speedup."""
    figure = FigureRow(
        machine="any",
        workload="generate",
        metric="output_tokens_per_s",
        count=2,
        value=800.0,
        unit="tokens/s",
        kind="measured",
        source="s",
    )
    assert _source(_table(figure)) is None


def test_absolute_checks_of_a_benchmark(build: Build) -> None:
    """20 tokens/s asked of every point: one passes, one broke, one is skipped, one the user left out."""
    one, two = build.generate(1), build.generate(2)
    plan = Plan(points=(one, two), skips=(_skip(4, "needs 4 GPUs"),), left_out=(_skip(8, "left out"),))
    suite = _suite(Limits(metric="output_tokens_per_s", minimum=20.0))
    measurements = Measurements.of(plan, [*build.measured(one, [[1.0], [1.0]]), build.failed(two)])
    checks = absolute_checks(suite, measurements, summarize(measurements), {}, build.machine())
    assert [(check.verdict, check.reason) for check in checks] == [
        ("pass", SENTENCES["absolute_checks_of_a_benchmark"]),
        ("error", "out_of_memory: 81 GiB asked"),
        ("missing", "needs 4 GPUs"),
    ]
    assert scaling_results(suite, Measurements.of(plan, []), {}, build.machine()) == ()


def _manifest(build: Build, plan: Plan) -> Manifest:
    """Generation on one and two GPUs, whose speedup has a row."""
    return dataclasses.replace(
        MANIFEST,
        suite=_suite(_STRONG, counts=(1, 2)),
        plan=plan,
        machine=build.machine(),
        tables={"t": _table(_row())},
        engine="local",
    )


def test_results_are_assembled_from_manifest_and_records(build: Build) -> None:
    """Records of points that the plan does not have are left aside."""
    plan, records = _measured(build, {1: [[4.0], [4.0]], 2: [[2.2], [2.2]]})
    plan = dataclasses.replace(plan, points=tuple(with_attempts(point, 2) for point in plan.points))
    stranger = build.measured(build.generate(64), [[1.0]])
    manifest = _manifest(build, plan)
    results = judged(manifest, [*records, *stranger])
    assert (results.verdict, results.reason) == ("pass", "1 of 1 expectation judged")
    assert len(results.points) == 2
    assert results.provenance.packages == {"python": "3.11", "torch": "2.11.0"}
    assert judged(manifest, []).provenance.packages == {}
    assert results.provenance.forward_compatible is None
    (rank,) = records[0].ranks
    header = dataclasses.replace(rank.header, driver="570.86", forward_compatible=True)
    compatible = dataclasses.replace(records[0], ranks=(dataclasses.replace(rank, header=header),))
    provenance = assemble(manifest, Measurements.of(manifest.plan, [compatible, *records[1:]])).provenance
    assert (provenance.worker_driver, provenance.forward_compatible) == ("570.86", True)
    assert results.scaling[0].speedup == pytest.approx(4 / 2.2)


@pytest.mark.parametrize(
    ("time_limit_s", "verdict", "reason"),
    [(None, "missing", "3 attempts to be made"), (600.0, "pass", "1 of 2 expectations judged; 1 has no row for h200")],
)
def test_an_unfinished_run_does_not_pass(build: Build, time_limit_s: float | None, verdict: str, reason: str) -> None:
    """It owes a third attempt at one point and two at another; what a time limit left out is owed no more."""
    plan, records = _measured(build, {1: [[4.0], [4.0]], 2: [[2.2], [2.2]], 4: [[1.0]]})
    plan = dataclasses.replace(plan, points=(with_attempts(plan.points[0], 2), *plan.points[1:]))
    manifest = dataclasses.replace(_manifest(build, plan), options=PlanOptions(time_limit_s=time_limit_s))
    results = assemble(manifest, Measurements.of(plan, records))
    assert (results.verdict, results.reason) == (verdict, reason)
    assert ["fewer_attempts" in point.flags for point in results.points] == [False, True, True]


def test_without_a_table_the_speedup_is_only_shown(build: Build) -> None:
    """Measured or skipped, nothing is expected of it."""
    plan, records = _measured(build, {1: [[4.0], [4.0]], 2: [[2.5], [2.5]]})
    plan = dataclasses.replace(plan, skips=(_skip(4, "needs 4 GPUs, found 2"),))
    shown = dataclasses.replace(_STRONG, table=None)
    measurements = Measurements.of(plan, records)
    two, four = scaling_results(_suite(shown), measurements, {}, build.machine())
    assert two.speedup == pytest.approx(1.6)
    assert (two.verdict, two.expected) == ("no_expectation", None)
    assert (four.verdict, four.reason) == ("no_expectation", "needs 4 GPUs, found 2")
    assert absolute_checks(_suite(shown), measurements, summarize(measurements), {}, build.machine()) == ()


def test_two_expectations_of_one_metric_have_rows_of_their_own(build: Build) -> None:
    """One is judged from one GPU on, one is shown from two on: the shown ratio changes nothing of the judged one."""
    plan, records = _measured(build, {1: [[4.0], [4.0]], 2: [[2.5], [2.5]], 4: [[2.0], [2.0]]})
    suite = _suite(_STRONG, dataclasses.replace(_STRONG, table=None, baseline=2))
    table = _table(_row(value=1.6), _row(count=4, value=2.0), _row(count=4, kind="claim", value=3.0))
    measurements = Measurements.of(plan, records)
    rows = scaling_results(suite, measurements, {"t": table}, build.machine())
    assert [(row.baseline_count, row.count, row.verdict) for row in rows] == [
        (1, 2, "pass"),
        (1, 4, "pass"),
        (2, 4, "no_expectation"),
    ]
    counts = count(suite, plan, rows, ())
    assert (counts.expected, counts.judged, counts.passed, counts.without_figure) == (2, 2, 2, 0)
    (claim,) = scaling_claims(suite, measurements, {"t": table}, build.machine(), rows)
    assert (claim.point_id, claim.baseline_id) == (plan.points[2].id, plan.points[0].id)


@pytest.mark.parametrize(("metric", "efficiency"), [("total_tokens_per_s", 0.8), ("mfu_fraction", None)])
def test_only_a_throughput_of_all_gpus_has_an_efficiency(build: Build, metric: str, efficiency: float | None) -> None:
    """A share of the GPUs' peaks stays where it is when GPUs are added."""
    points = {number: build.generate(number) for number in (1, 2)}
    work = Work(prompt_tokens=120, output_tokens=40, samples=4)
    records = [
        build.record(
            points[number],
            tuple(
                build.rank(build.steps([length], work, rounds=10), rank, device_name="NVIDIA H200")
                for rank in range(number)
            ),
            attempt,
        )
        for number, length in ((1, 4.0), (2, 2.5))
        for attempt in (1, 2)
    ]
    plan = Plan(points=tuple(points.values()), skips=())
    suite = _suite(dataclasses.replace(_STRONG, metric=metric), counts=(1, 2))
    (two,) = scaling_results(suite, Measurements.of(plan, records), {"t": _table()}, build.machine())
    assert two.speedup == pytest.approx(1.6 if efficiency else 0.8)
    assert two.efficiency == (None if efficiency is None else pytest.approx(efficiency))


def test_a_prediction_judges_where_no_row_fits(build: Build) -> None:
    """Its limit is the prediction less the band; a row of the table goes first, and joules have no prediction."""
    plan, records = _measured(build, {1: [[4.0], [4.0]], 2: [[2.5], [2.5]]})
    two = Prediction(
        point_id="decode[tensor_parallel=2]",
        baseline_id="decode[tensor_parallel=1]",
        speedup=1.7,
        band_fraction=0.1,
        source="node check n",
    )
    measurements, machine = Measurements.of(plan, records), build.machine()
    suite = _suite(_STRONG, counts=(1, 2))
    (row,) = scaling_results(suite, measurements, {"t": _table()}, machine, [two])
    assert row.verdict == "pass"
    assert row.expected == two.expected
    assert row.expected is not None
    assert row.expected.minimum == pytest.approx(1.53)
    (first,) = scaling_results(suite, measurements, {"t": _table(_row())}, machine, [two])
    assert (first.verdict, first.expected and first.expected.table) == ("fail", "t")
    (low,) = scaling_results(
        suite, measurements, {"t": _table()}, machine, [dataclasses.replace(two, band_fraction=0.0)]
    )
    assert low.verdict == "fail"


def test_require_table_refuses_predictions(build: Build) -> None:
    """The command line can insist on tables."""
    plan, records = _measured(build, {1: [[4.0], [4.0]], 2: [[2.5], [2.5]]})
    two = Prediction(
        point_id="decode[tensor_parallel=2]",
        baseline_id="decode[tensor_parallel=1]",
        speedup=1.7,
        band_fraction=0.1,
        source="node check n",
    )
    suite = _suite(_STRONG, counts=(1, 2))
    manifest = dataclasses.replace(
        MANIFEST, suite=suite, plan=plan, machine=build.machine(), tables={"t": _table()}, predictions=(two,)
    )
    assert assemble(manifest, Measurements.of(plan, records)).scaling[0].verdict == "pass"
    strict = dataclasses.replace(manifest, options=PlanOptions(require="table"))
    assert assemble(strict, Measurements.of(plan, records)).scaling[0].verdict == "no_expectation"


def _row_on(build: Build, card: str, steps: dict[int, list[list[float]]]) -> ScalingResult:
    """The speedup of two GPUs of a card, against 1.7."""
    plan, records = _measured(build, steps)
    measurements = Measurements.of(plan, build.on_card(card, records))
    tables = {"t": _table(_row(value=None, minimum=1.7))}
    (row,) = scaling_results(_suite(_STRONG, counts=(1, 2)), measurements, tables, build.machine())
    return row


@pytest.mark.parametrize(
    ("two_s", "verdict", "needed"),
    [(2.0, "pass", None), (2.3, "inconclusive", 2), (2.5, "inconclusive", 3), (2.8, "fail", None)],
)
def test_one_attempt_decides_where_it_is_clear(build: Build, two_s: float, verdict: str, needed: int | None) -> None:
    """The spread of other runs on its card decides: a pass needs the usual spread, a fail three times the spread.

    From three attempts on their own spread decides.
    """
    row = _row_on(build, "NVIDIA H200", {1: [[4.0]], 2: [[two_s]]})
    assert row.verdict == verdict
    assert row.decision is not None
    assert (row.decision.num_attempts, row.decision.num_points > 0) == (1, True)
    assert row.decision.attempts_to_decide == needed
    assert None not in (row.speedup_low, row.speedup_high)


@pytest.mark.parametrize(("second_s", "verdict"), [([2.0], "pass"), ([2.9], "inconclusive")])
def test_a_second_attempt_takes_no_verdict_back_but_by_its_scatter(
    build: Build, second_s: list[float], verdict: str
) -> None:
    """Two attempts are judged by the spread of other runs, or by their own where that is larger."""
    row = _row_on(build, "NVIDIA H200", {1: [[4.0], [4.01]], 2: [[2.02], second_s]})
    assert (row.verdict, "by the spread of other runs" in row.reason) == (verdict, True)


def test_two_attempts_joules_count_as_one(build: Build) -> None:
    """Also where the gain of the board, which both points have, cancels."""
    points, reaches = (build.generate(2), build.generate(1)), []
    for attempts in (1, 2):
        joules = build.energy((100.0,), 2.0)
        records = [r for p in points for r in build.measured(p, [[2.0]] * attempts, energy=joules)]
        plan = Plan(points=points, skips=())
        measured = Measurements.of(plan, build.on_card("NVIDIA H200", records))
        rows = [row_statistics(measured, metric, points[:1], points[1:]) for metric in ("energy_j", "step_s")]
        reaches.append([row.contrast.reach(0.025) for row in rows if row.contrast])
    (energy, step), (energy_of_two, step_of_two) = reaches
    assert energy_of_two == pytest.approx(energy)
    assert step_of_two == pytest.approx(step / math.sqrt(2))


def test_one_attempt_on_another_card_decides_nothing(build: Build) -> None:
    """How far runs scatter there is not known."""
    assert _row_on(build, "NVIDIA B200", {1: [[4.0]], 2: [[2.0]]}).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("speedup", "exposed", "gap", "part"),
    [
        (1.5, 0.30, 0.01, "communication takes 30.0 % of the step, predicted 10.0 %"),
        (1.7, 0.11, 0.12, "imbalance: the slowest GPU takes 12.0 % longer than the others"),
        (1.5, 0.09, 0.01, "lower clocks or the host are left"),
        (1.95, 0.30, 0.01, None),
    ],
    ids=["a slow link", "a slow GPU", "a slow host", "above its prediction"],
)
def test_the_part_that_is_longer_than_predicted_is_named(
    speedup: float, exposed: float, gap: float, part: str | None
) -> None:
    """Steps without communication show the saved time and the delay of the slowest rank."""
    samples = {"exposed_communication_fraction": ((exposed,),), "straggler_gap_fraction": ((gap,),)}
    named = missing_part(samples, speedup / 1.9, 0.1)
    assert named == part or (part is not None and named is not None and named.endswith(part))
    assert missing_part({}, speedup / 1.9, 0.1) is None


def test_a_row_without_nvlink_sharp_is_a_floor_with_it() -> None:
    """A row with it is for machines with it alone, and closer there."""
    table = _table(_row(source="off", nvls="off"), _row(source="on", nvls="on"))
    assert _source(table, nvls="on") == "on"
    assert _source(table, nvls="off") == "off"
    assert _source(_table(_row(source="off", nvls="off")), nvls="on") == "off"
    assert _source(_table(_row(source="on", nvls="on")), nvls="off") is None


@pytest.mark.parametrize(
    ("fabric", "variables", "expected"),
    [
        ("completed", {}, "on"),
        ("completed", {"NCCL_NVLS_ENABLE": "2"}, "on"),
        ("completed", {"NCCL_NVLS_ENABLE": "0"}, "off"),
        ("in progress", {}, "off"),
        (None, {}, "off"),
    ],
)
def test_nvlink_sharp_needs_a_fabric_and_no_variable_against_it(
    fabric: str | None, variables: dict[str, str], expected: str
) -> None:
    """One GPU has nobody to reduce with."""
    gpu = dataclasses.replace(H200, fabric=fabric)
    assert nvls_of((gpu, gpu), variables) == expected
    assert nvls_of((gpu,), variables) == "off"
