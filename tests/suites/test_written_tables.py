"""Tables from good runs of shipped suites: a row judges each point of the next run."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pybench.core.assemble import assemble
from pybench.core.good_run import GoodRun
from pybench.core.measurements import Measurements
from pybench.core.population import population_of
from pybench.files.suite.expected_table import read_table, write_table
from pybench.model.record import Record
from pybench.model.results import Results
from pybench.model.suite import Benchmark, ExpectedRow, ExpectedTable, Point, RatioRow, Scaling, TableFigure
from pybench.model.verdict import Expected
from pybench.model.wire import Work
from pybench.model.workloads.registry import METRICS_OF
from tests.build import Build
from tests.builders import MANIFEST, with_attempts
from tests.suites.test_any_gpus import SUITES, planned_on, read


def _judged(benchmark: Benchmark) -> Benchmark:
    """With nothing but what a row may be for, all of one table: also ratios that the suite only shows."""
    rows = [e for e in benchmark.expectations if isinstance(e, Scaling | TableFigure)]
    return replace(benchmark, expectations=tuple(replace(e, table="mine") for e in rows))


class _Run:
    """A suite's whole plan, each point with figures of its own, the same in three attempts."""

    def __init__(self, path: Path, kind: str, num_gpus: int) -> None:
        build, suite = Build(), read(path, kind)
        plan = planned_on(suite, kind, num_gpus)
        plan = replace(plan, points=tuple(with_attempts(point, 3) for point in plan.points))
        records = [record for place, point in enumerate(plan.points) for record in _records(build, point, place)]
        self.measured = Measurements.of(plan, records)
        suite = replace(suite, benchmarks=tuple(map(_judged, suite.benchmarks)))
        self.manifest = replace(MANIFEST, suite=suite, plan=plan, machine=build.machine(kind))

    def results(self, *rows: ExpectedRow) -> Results:
        """As these rows judge it."""
        table = ExpectedTable(name="mine", description="d", rows=rows)
        return assemble(replace(self.manifest, tables={"mine": table}), self.measured)

    def rows(self, folder: Path) -> tuple[ExpectedRow, ...]:
        """A table is written and read again."""
        run = GoodRun(manifest=self.manifest, measurements=self.measured, results=self.results())
        write_table(population_of([run], "mine").table, folder / "mine.toml")
        return read_table(folder / "mine.toml").rows


def _records(build: Build, point: Point, place: int) -> list[Record]:
    """More GPUs are faster, by less than their number; what ranks report of a node is made up, too."""
    own = 1 + math.sqrt(2 + place) % 1 / 10
    work = Work(prompt_tokens=120, output_tokens=40, samples=4)
    rates = {name: 1e12 * own for name in METRICS_OF[point.settings.workload] if name.endswith("_per_s")}
    steps = tuple(replace(s, values=rates) for s in build.steps([1000 * own / math.sqrt(point.num_gpus)], work))
    ranks = tuple(build.rank(steps, rank, memory=5e9 * own) for rank in range(point.num_gpus))
    return [build.record(point, ranks, attempt) for attempt in (1, 2, 3)]


def _middle(expected: Expected | None) -> float:
    assert expected is not None
    assert expected.minimum is not None
    assert expected.maximum is not None
    return (expected.minimum + expected.maximum) / 2


@pytest.mark.parametrize(("kind", "num_gpus"), [("h200", 8), ("h100", 4)])
def test_each_point_is_judged_by_its_own_row(tmp_path: Path, kind: str, num_gpus: int) -> None:
    """The ratio expected of it is the one that it had, though other points may have its metric and counts."""
    num_suites = 0
    for path in SUITES:
        run = _Run(path, kind, num_gpus)
        # The one ratio of checkpoint is of spans inside a step, which no record here has.
        if path.stem == "checkpoint" or not any(b.expectations for b in run.manifest.suite.benchmarks):
            continue
        (tmp_path / path.stem).mkdir()
        again = run.results(*run.rows(tmp_path / path.stem))
        ratios = [row for row in again.scaling if row.speedup is not None]
        figures = [check for check in again.checks if check.value is not None]
        assert ratios or figures, path
        assert [_middle(row.expected) for row in ratios] == pytest.approx([row.speedup for row in ratios], rel=1e-5)
        assert {row.verdict for row in ratios} | {check.verdict for check in figures} == {"pass"}, path
        assert set(Counter((row.metric, row.speedup) for row in ratios).values()) <= {1}, f"{path}: equal figures"
        num_suites += 1
    assert num_suites == 15


def test_weak_and_strong_scaling_have_rows_of_their_own(tmp_path: Path) -> None:
    """The points of ddp_scaling on two H200s differ in these settings. One without settings still holds for both."""
    (path,) = (path for path in SUITES if path.stem == "ddp_scaling")
    run = _Run(path, "h200", 2)
    rows = [row for row in run.rows(tmp_path) if isinstance(row, RatioRow) and row.metric == "tokens_per_s"]
    assert [row.where for row in rows] == [
        {"grad_accum": 1},
        {"global_batch_size": 16, "grad_accum": "auto"},
    ]
    judged = run.results(replace(rows[0], where={})).scaling
    weak, strong = (row for row in judged if row.metric == "tokens_per_s" and row.speedup is not None)
    assert weak.expected == strong.expected
    assert _middle(strong.expected) == pytest.approx(rows[0].value)
