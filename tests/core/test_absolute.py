"""A point's own figures against an expected table's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.core.absolute import absolute_checks, absolute_claims, absolute_row
from pybench.core.measurements import Measurements
from pybench.core.summary import summarize
from pybench.model.results import CheckResult
from pybench.model.suite import (
    Benchmark,
    Effort,
    ExpectedRow,
    ExpectedTable,
    FigureRow,
    Plan,
    Point,
    RatioRow,
    Skip,
    Suite,
    TableFigure,
)
from pybench.model.workloads.node import Collective
from tests.api import suite_of
from tests.build import Build
from tests.builders import with_settings
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.absolute")

_EXPECTATION = TableFigure(metric="busbw_bytes_per_s", table="t")


def _point(gpus: int = 4, **settings: Any) -> Point:
    return Point(
        id=f"ring[gpus={gpus}]",
        benchmark="ring",
        axes={"gpus": gpus},
        settings=Collective(backend="torch", gpus=gpus, **settings),
        effort=Effort(),
        architecture=None,
    )


def _row(**fields: Any) -> FigureRow:
    values: dict[str, Any] = {
        "machine": "h200",
        "workload": "collective",
        "metric": "busbw_bytes_per_s",
        "unit": "bytes/s",
        "count": 4,
        "value": 100.0,
        "tolerance": 0.1,
        "kind": "published",
        "source": "s",
    }
    return FigureRow(**{**values, **fields})


def _table(*rows: ExpectedRow) -> ExpectedTable:
    return ExpectedTable(name="t", description="", rows=rows)


def _check(build: Build, busbw: float, *rows: ExpectedRow, attempts: int = 2) -> CheckResult:
    measurements = _measured(build, busbw, attempts)
    results = summarize(measurements)
    (check,) = absolute_checks(_suite(), measurements, results, {"t": _table(*rows)}, build.machine())
    return check


def _measured(build: Build, busbw: float, attempts: int = 2) -> Measurements:
    point = _point()
    records = []
    for record in build.measured(point, [[1.0, 1.0]] * attempts):
        (rank,) = record.ranks
        steps = tuple(dataclasses.replace(step, values={"busbw_bytes_per_s": busbw}) for step in rank.steps)
        records.append(dataclasses.replace(record, ranks=(dataclasses.replace(rank, steps=steps),)))
    return Measurements.of(Plan(points=(point,), skips=()), records)


def _suite() -> Suite:
    ring = Benchmark(
        name="ring", workload="collective", settings={}, axes={}, effort=Effort(), expectations=(_EXPECTATION,)
    )
    return suite_of(ring)


@pytest.mark.parametrize(
    ("busbw", "verdict"), [(90.0, "pass"), (100.0, "pass"), (200.0, "pass"), (89.0, "fail"), (1.0, "fail")]
)
def test_bandwidth_is_held_to_its_minimum(build: Build, busbw: float, verdict: str) -> None:
    """100 give or take a tenth; beyond the better side is a pass."""
    check = _check(build, busbw, _row())
    assert (check.verdict, check.table, check.source) == (verdict, "t", "s")
    assert check.minimum == pytest.approx(90.0)
    assert check.maximum is None


def test_one_attempt_is_inconclusive(build: Build) -> None:
    """As everywhere."""
    assert _check(build, 100.0, _row(), attempts=1).verdict == "inconclusive"


def test_a_machine_without_a_figure_is_told(build: Build) -> None:
    """The row has the measured figure and the name of the table without a row."""
    check = _check(build, 100.0, _row(machine="h100"))
    assert (check.verdict, check.reason) == ("no_expectation", SENTENCES["a_machine_without_a_figure_is_told"])
    assert check.value is not None


def _joules(build: Build, *rows: ExpectedRow, metric: str = "energy_j_per_output_token") -> CheckResult:
    """Generation on a CPU, without a driver, held against a table of joules or another metric."""
    point = build.generate(1)
    measurements = Measurements.of(
        Plan(points=(point,), skips=()), build.measured(point, [[1.0]] * 2, energy_reason="no driver")
    )
    expected = TableFigure(metric=metric, table="t")
    decode = Benchmark(
        name="decode", workload="generate", settings={}, axes={}, effort=Effort(), expectations=(expected,)
    )
    suite, results = suite_of(decode), summarize(measurements)
    (check,) = absolute_checks(suite, measurements, results, {"t": _table(*rows)}, build.machine("cpu"))
    return check


def test_what_this_machine_does_not_measure_is_no_fault_of_the_table(build: Build) -> None:
    """Joules without a driver: a row would not help, and with one they are missing for the same reason."""
    assert (_joules(build).verdict, _joules(build).reason) == ("no_expectation", "no driver")
    row = _row(machine="cpu", workload="generate", metric="energy_j_per_output_token", unit="J/token", count=1)
    assert (_joules(build, row).verdict, _joules(build, row).reason) == ("missing", "no driver")


def test_what_needs_no_driver_is_not_absent_for_want_of_one(build: Build) -> None:
    """The share of a peak is unknown where the peak is."""
    check = _joules(build, metric="mfu_fraction")
    assert (check.verdict, check.reason) == ("no_expectation", "the metric was not measured")


def test_what_did_not_run_and_has_no_figure(build: Build) -> None:
    """A skipped point expects nothing where the table has no row for it; a broken worker is an error."""
    skip = Skip(id="ring[gpus=8]", benchmark="ring", axes={"gpus": 8}, num_gpus=8, reason="needs 8 GPUs, found 4")
    plan = Plan(points=(_point(),), skips=(skip,))
    measurements = Measurements.of(plan, [build.failed(_point())])
    results = summarize(measurements)
    broken, skipped = absolute_checks(_suite(), measurements, results, {"t": _table(_row(count=2))}, build.machine())
    assert (broken.verdict, broken.reason) == ("error", "out_of_memory: 81 GiB asked")
    assert (skipped.verdict, skipped.reason) == ("no_expectation", "needs 8 GPUs, found 4")


def test_figures_hold_where_settings_are_as_told(build: Build) -> None:
    """Another size is another figure."""
    table = _table(_row(where={"operation": "all_reduce", "message_bytes": 1024}))
    small, large = _point(message_bytes=1024), _point(message_bytes=4096)
    assert absolute_row(table, small, "busbw_bytes_per_s", build.machine()) is table.rows[0]
    assert absolute_row(table, large, "busbw_bytes_per_s", build.machine()) is None


def test_a_figure_without_a_cache_is_none_for_points_with_one(build: Build) -> None:
    """The reverse fails, too: work spared by a cache would look like a faster GPU."""
    plain = build.generate(1)
    spared = with_settings(plain, prefix_caching=True)
    keys = {"workload": "generate", "metric": "output_tokens_per_s", "unit": "tokens/s", "count": 1}
    for where, held in ({}, plain), ({"prefix_caching": True}, spared):
        table = _table(_row(**keys, where=where))
        for point in (plain, spared):
            row = absolute_row(table, point, "output_tokens_per_s", build.machine())
            assert (row is not None) == (point is held)


@pytest.mark.parametrize(
    ("loser", "winner"),
    [
        ({}, {"where": {"operation": "all_reduce"}}),
        ({"count": 1, "per_gpu": True}, {}),
        ({"machine": "any"}, {"machine": "gpu"}),
        ({}, {"fabric": "nvlink"}),
        ({}, {"kind": "measured"}),
    ],
)
def test_the_closest_row_wins(build: Build, loser: dict[str, Any], winner: dict[str, Any]) -> None:
    """In both orders."""
    rows = (_row(**loser, source="loser"), _row(**winner, source="winner"))
    for ordered in (rows, rows[::-1]):
        row = absolute_row(_table(*ordered), _point(), "busbw_bytes_per_s", build.machine())
        assert row is not None
        assert row.source == "winner"


def test_a_figure_of_each_gpu_holds_for_more_of_them(build: Build) -> None:
    """But a link's not for one alone, and another metric's or a ratio not at all."""
    link = _table(_row(count=2, per_gpu=True))
    assert absolute_row(link, _point(4), "busbw_bytes_per_s", build.machine()) is not None
    assert absolute_row(link, _point(1), "busbw_bytes_per_s", build.machine()) is None
    assert absolute_row(link, _point(4), "algbw_bytes_per_s", build.machine()) is None
    ratio = RatioRow(
        machine="h200",
        workload="collective",
        metric="busbw_bytes_per_s",
        count=4,
        value=2.0,
        kind="measured",
        source="s",
    )
    assert absolute_row(_table(ratio), _point(4), "busbw_bytes_per_s", build.machine()) is None


def test_a_claim_judges_nothing_and_is_shown_apart(build: Build) -> None:
    """90 of a promised 100, less a tenth, keep it; 80 do not; there is no expectation either way."""
    for busbw, state in ((100.0, "kept"), (80.0, "not kept")):
        measurements = _measured(build, busbw)
        results = summarize(measurements)
        tables = {"t": _table(_row(kind="claim", source="a guide"))}
        (check,) = absolute_checks(_suite(), measurements, results, tables, build.machine())
        (claim,) = absolute_claims(measurements, tables, build.machine(), [check])
        assert check.verdict == "no_expectation"
        assert (claim.state, claim.source, claim.found.value, claim.baseline_id) == (state, "a guide", busbw, None)


def test_an_expectation_of_one_gpu_says_nothing_of_more(build: Build) -> None:
    """A table of single GPUs is no expectation of a point of four."""
    measurements = _measured(build, 95.0)
    suite = _suite()
    one = dataclasses.replace(_EXPECTATION, gpus=1)
    of_one = dataclasses.replace(suite, benchmarks=(dataclasses.replace(suite.benchmarks[0], expectations=(one,)),))
    tables = {"t": _table(_row())}
    assert absolute_checks(of_one, measurements, summarize(measurements), tables, build.machine()) == ()
