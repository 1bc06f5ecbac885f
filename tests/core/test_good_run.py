"""An expected table from a good run, and back through the strict reader."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from pybench.core.good_run import MIN_TOLERANCE
from pybench.core.plan import point_id, skipped
from pybench.core.population import population_of
from pybench.files.suite.expected_table import read_table, write_table
from pybench.model.container import ContainerSetup
from pybench.model.errors import FileError, UsageError
from pybench.model.manifest import Manifest, PlanOptions
from pybench.model.record import Record
from pybench.model.suite import (
    AxisValue,
    Benchmark,
    Effort,
    ExpectedTable,
    FigureRow,
    Plan,
    Point,
    RatioRow,
    Scaling,
    Suite,
    TableFigure,
)
from pybench.model.workloads.node import Matmul
from tests.api import good_run, judged
from tests.build import Build
from tests.builders import IMAGE, MANIFEST, with_attempts, with_settings
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.good_run")

_STRONG = Scaling(metric="output_tokens_per_s", scaling="strong", along="tensor_parallel", table="t")
_KERNEL = TableFigure(metric="matmul_flops_per_s", table="k")


class MeasuredRun:
    """Two benchmarks: generation on 1 and 2 GPUs, and a matmul that reports 100, 102 and 104 TFLOP/s.

    ``times_s``: lengths of the matmul's attempts, the metric of the table.
    """

    def __init__(
        self,
        build: Build,
        flops: tuple[float, ...] = (100e12, 102e12, 104e12),
        times_s: tuple[float, ...] | None = None,
    ) -> None:
        one, two = build.generate(1), build.generate(2)
        square = Point(
            id="square[gpus=1]",
            benchmark="square",
            axes={"gpus": 1},
            settings=Matmul(backend="torch", m=64, n=64, k=64),
            effort=Effort(),
            architecture=None,
        )
        times = {one.id: [4.0, 4.0, 4.0], two.id: [2.0, 2.0, 2.0], square.id: times_s or [1.0] * len(flops)}
        points = tuple(with_attempts(point, len(flops)) for point in (one, two, square))
        self.records: list[Record] = []
        for point in points:
            for record, value in zip(build.measured(point, [[t] for t in times[point.id]]), flops, strict=False):
                (rank,) = record.ranks
                steps = tuple(dataclasses.replace(step, values={"matmul_flops_per_s": value}) for step in rank.steps)
                self.records.append(dataclasses.replace(record, ranks=(dataclasses.replace(rank, steps=steps),)))
        decode = Benchmark(
            name="decode",
            workload="generate",
            settings={"model": "m", "backend": "torch"},
            axes={"tensor_parallel": (1, 2)},
            effort=Effort(),
            expectations=(_STRONG,),
        )
        kernel = Benchmark(
            name="square",
            workload="matmul",
            settings={},
            axes={},
            effort=Effort(),
            expectations=(_KERNEL if times_s is None else TableFigure(metric="step_s", table="k"),),
        )
        self.manifest = dataclasses.replace(
            MANIFEST,
            suite=Suite(name="s", description="d", benchmarks=(decode, kernel)),
            plan=Plan(points=points, skips=()),
            machine=dataclasses.replace(build.machine(), gpu_names=("NVIDIA H200",), gpu_count=1, driver="580"),
            tables={name: ExpectedTable(name=name, description="", rows=()) for name in ("t", "k")},
        )

    def table(self, only: str | None = None, manifest: Manifest | None = None) -> ExpectedTable:
        manifest = manifest or self.manifest
        return population_of([good_run(manifest, self.records)], "mine", only).table


def test_figures_are_medians_with_the_spread_between_attempts(build: Build) -> None:
    """100, 102, 104: s of logarithms 0.01961, t(2) = 4.303, another mean of three: t s sqrt(2/3). Ratio: all equal.

    A product is at least ``exp(-reach)`` of it, which is ``value * (1 - tolerance)``.
    """
    absolute, ratio = MeasuredRun(build).table().rows
    assert isinstance(absolute, FigureRow)
    assert isinstance(ratio, RatioRow)
    assert absolute.value == pytest.approx((100 * 102 * 104) ** (1 / 3) * 1e12)
    assert (absolute.unit, absolute.count) == ("FLOP/s", 1)
    reach = 4.30265 * 0.0196105 * (2 / 3) ** 0.5
    assert absolute.tolerance == pytest.approx(1 - math.exp(-reach), rel=1e-5)
    assert absolute.where == {"precision": "bfloat16", "m": 64, "n": 64, "k": 64, "products": 50}
    assert ratio.value == pytest.approx(2.0)
    assert ratio.tolerance == pytest.approx(MIN_TOLERANCE)
    assert (ratio.count, ratio.baseline_count) == (2, 1)
    assert (ratio.model_class, ratio.kind) == ("8b", "measured")
    assert absolute.source == SENTENCES["figures_are_medians_with_the_spread"]


def test_two_attempts_apart_keep_a_least_figure(build: Build, tmp_path: Path) -> None:
    """t(1) = 12.7, so that the reach of 100 and 107 is 0.608, of which 46 % less is left."""
    table = MeasuredRun(build, flops=(100e12, 107e12)).table("k")
    (row,) = table.rows
    reach = 12.7062 * math.log(1.07) / math.sqrt(2)
    assert row.tolerance == pytest.approx(1 - math.exp(-reach), rel=1e-5)
    write_table(table, tmp_path / "mine.toml")
    least, _ = read_table(tmp_path / "mine.toml").rows[0].limits
    assert least == pytest.approx(math.sqrt(1.07) * 100e12 * math.exp(-reach), rel=1e-4)


def test_a_time_may_be_longer_by_what_attempts_scatter(build: Build) -> None:
    """1.0, 1.1, 1.2 s: s of logarithms 0.09119, reach 0.3204; the most is ``exp(0.3204)`` of the value, 38 % more."""
    (row,) = MeasuredRun(build, times_s=(1.0, 1.1, 1.2)).table("k").rows
    assert row.metric == "step_s"
    assert row.tolerance == pytest.approx(math.expm1(4.30265 * 0.0911924 * (2 / 3) ** 0.5), rel=1e-5)


def test_a_time_that_may_double_is_refused(build: Build) -> None:
    """1.0 and 1.1 s of two attempts reach 0.86; a row with such a limit would hold nothing."""
    run = MeasuredRun(build, flops=(100e12, 102e12), times_s=(1.0, 1.1))
    with pytest.raises(UsageError, match=r"square\[gpus=1\]: step_s scatters .* 2 attempts .* twice .* more attempts"):
        run.table("k")


def test_a_throughput_that_may_halve_is_refused(build: Build) -> None:
    """100 and 120 of two attempts reach 1.64: a row that passes at a fifth of its value would hold nothing."""
    run = MeasuredRun(build, flops=(100e12, 120e12))
    words = r"square\[gpus=1\]: matmul_flops_per_s scatters .* 2 attempts .* half .* nothing; measure more attempts"
    with pytest.raises(UsageError, match=words):
        run.table("k")
    # The other table's row is as narrow as ever.
    assert [row.tolerance for row in run.table("t").rows] == [pytest.approx(MIN_TOLERANCE)]


def test_a_figure_of_zero_is_refused(build: Build) -> None:
    """No tolerance is a fraction of it."""
    run = MeasuredRun(build, flops=(0.0, 0.0, 0.0))
    with pytest.raises(UsageError, match=r"square\[gpus=1\]: matmul_flops_per_s can't have a row: .* found 0 "):
        run.table("k")


def test_a_ratio_that_may_halve_is_refused(build: Build) -> None:
    """The baseline's 4.0 and 4.4 s alone reach 0.86."""
    run = MeasuredRun(build, flops=(100e12, 100e12))
    one = run.manifest.plan.points[0]
    run.records = [
        *build.measured(one, [[4.0], [4.4]]),
        *(record for record in run.records if record.point_id != one.id),
    ]
    with pytest.raises(UsageError, match=r"the ratio of output_tokens_per_s scatters .* half the figure"):
        run.table("t")


@pytest.mark.parametrize(("description", "written"), [("", "Written from run r"), ("d", "Written from run r: d")])
def test_a_table_is_described_by_its_run_and_its_suite(build: Build, description: str, written: str) -> None:
    """A suite need not have a description."""
    run = MeasuredRun(build)
    suite = dataclasses.replace(run.manifest.suite, description=description)
    assert run.table(manifest=dataclasses.replace(run.manifest, suite=suite)).description == written


def test_one_table_of_several(build: Build) -> None:
    """Each in a file of its own."""
    run = MeasuredRun(build)
    assert [row.metric for row in run.table("k").rows] == ["matmul_flops_per_s"]
    assert [row.metric for row in run.table("t").rows] == ["output_tokens_per_s"]
    with pytest.raises(UsageError, match="judges nothing by table 'x'"):
        run.table("x")


def test_what_is_written_is_read_back(build: Build, tmp_path: Path) -> None:
    """The strict reader takes it; figures have six digits."""
    run = MeasuredRun(build)
    run.manifest = dataclasses.replace(
        run.manifest, suite=dataclasses.replace(run.manifest.suite, description='a "quote", a \\ and ünï')
    )
    table = run.table()
    write_table(table, tmp_path / "mine.toml")
    read = read_table(tmp_path / "mine.toml")
    assert read.description == table.description
    for before, after in zip(table.rows, read.rows, strict=True):
        assert dataclasses.replace(after, value=before.value, tolerance=before.tolerance) == before
        assert (after.value, after.tolerance) == pytest.approx((before.value, before.tolerance), rel=1e-5)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("mine.txt", "an expected table is a .toml file"),
        ("none/mine.toml", "can't be written: No such file or directory; make its folder first"),
    ],
)
def test_where_no_table_can_be_written(build: Build, tmp_path: Path, path: str, message: str) -> None:
    """Said, not thrown."""
    with pytest.raises(FileError, match=message):
        write_table(MeasuredRun(build).table(), tmp_path / path)


_IMAGE = dataclasses.replace(IMAGE, name="mine", reference="mine:latest", id="sha256:0", pinned=False)
_UNPINNED = ContainerSetup(
    engine="docker",
    engine_version=None,
    runtime=None,
    rootless=False,
    lock="",
    images=(_IMAGE,),
    mounts=(),
    relaxations=(),
)


def test_unpinned_runs_are_refused(build: Build) -> None:
    """The error names the remedy."""
    run = MeasuredRun(build)
    with pytest.raises(UsageError, match="an image that is not pinned"):
        run.table(manifest=dataclasses.replace(run.manifest, container=_UNPINNED))


@pytest.mark.parametrize(
    ("cut", "kept", "lacks"),
    [
        (PlanOptions(keep="square"), 0, None),
        (PlanOptions(max_gpus=1), 1, "2 GPUs (--max-gpus 1)"),
        (PlanOptions(), 1, "2 GPUs (1 here)"),
        (PlanOptions(), 0, "torch (not installed)"),
    ],
)
def test_a_cut_run_gives_rows_of_what_it_measured(build: Build, cut: PlanOptions, kept: int, lacks: str | None) -> None:
    """By a filter, a limit, the machine's size or an absent backend: one row, and none of the ratio not measured."""
    run = MeasuredRun(build)
    *decode, square = run.manifest.plan.points
    left_out = tuple(skipped(point, None, f"left out: {lacks}", lacks) for point in decode[kept:]) if lacks else ()
    plan = Plan(points=(*decode[:kept], square), skips=(), left_out=left_out)
    run.records = [record for record in run.records if record.point_id in {point.id for point in plan.points}]
    (row,) = run.table(manifest=dataclasses.replace(run.manifest, plan=plan, options=cut)).rows
    assert row.metric == "matmul_flops_per_s"


def test_gpus_of_several_kinds_are_refused(build: Build) -> None:
    """A row of a mixed machine would hold for any other."""
    run = MeasuredRun(build)
    names = ("NVIDIA GeForce RTX 4090", "NVIDIA A100-PCIE-40GB")
    machine = dataclasses.replace(run.manifest.machine, kind="mixed", gpu_names=names, gpu_count=2)
    mixed = dataclasses.replace(run.manifest, machine=machine)
    with pytest.raises(UsageError, match="1 x NVIDIA GeForce RTX 4090, 1 x NVIDIA A100-PCIE-40GB are several kinds"):
        run.table(manifest=mixed)


def test_failed_attempts_are_refused(build: Build) -> None:
    """Also when others of that point were good."""
    run = MeasuredRun(build)
    run.records.append(build.failed(run.manifest.plan.points[0], attempt=4))
    with pytest.raises(UsageError, match=r"attempts of decode.* failed"):
        run.table()


def test_unmeasured_points_are_refused(build: Build) -> None:
    """The run's verdict says so."""
    run = MeasuredRun(build)
    run.records = run.records[:3]
    with pytest.raises(UsageError, match="its verdict is missing"):
        run.table()


def test_one_attempt_is_refused(build: Build) -> None:
    """It shows no spread."""
    run = MeasuredRun(build, flops=(100e12,))
    run.manifest = dataclasses.replace(
        run.manifest, suite=dataclasses.replace(run.manifest.suite, benchmarks=run.manifest.suite.benchmarks[1:])
    )
    with pytest.raises(UsageError, match="has one attempt, which shows no spread"):
        run.table()


def test_a_suite_without_tables_is_refused(build: Build) -> None:
    """There is nothing that a row could be for."""
    run = MeasuredRun(build)
    bare = tuple(dataclasses.replace(b, expectations=()) for b in run.manifest.suite.benchmarks)
    run.manifest = dataclasses.replace(run.manifest, suite=dataclasses.replace(run.manifest.suite, benchmarks=bare))
    with pytest.raises(UsageError, match="judges nothing by a table"):
        run.table()


def _two_batches(build: Build, expectation: Scaling | TableFigure) -> MeasuredRun:
    """Generation of 4 and 8 sequences, each on 1 and 2 GPUs, and nothing else."""
    run, times = MeasuredRun(build), {(4, 1): 4.0, (4, 2): 2.0, (8, 1): 5.0, (8, 2): 4.0}
    points, records = [], []
    for (batch, gpus), time_s in times.items():
        axes: dict[str, AxisValue] = {"batch_size": batch, "tensor_parallel": gpus}
        settled = with_settings(build.generate(gpus), batch_size=batch)
        point = dataclasses.replace(settled, id=point_id("decode", axes), axes=axes)
        points.append(with_attempts(point, 3))
        records += build.measured(points[-1], [[time_s]] * 3)
    decode = dataclasses.replace(
        run.manifest.suite.benchmarks[0],
        axes={"batch_size": (4, 8), "tensor_parallel": (1, 2)},
        expectations=(expectation,),
    )
    suite = dataclasses.replace(run.manifest.suite, benchmarks=(decode,))
    run.manifest = dataclasses.replace(run.manifest, suite=suite, plan=Plan(points=tuple(points), skips=()))
    run.records = records
    return run


def test_figures_of_one_row_name_the_settings_that_differ(build: Build) -> None:
    """Each point has its own row, so the run passes by its own table."""
    run = _two_batches(build, TableFigure(metric="output_tokens_per_s", table="t"))
    table = run.table()
    rows = [row for row in table.rows if isinstance(row, FigureRow)]
    assert [(row.count, row.where) for row in rows] == [
        (1, {"batch_size": 4}),
        (2, {"batch_size": 4}),
        (1, {"batch_size": 8}),
        (2, {"batch_size": 8}),
    ]
    manifest = dataclasses.replace(run.manifest, tables={"t": table, "k": table})
    assert judged(manifest, run.records).verdict == "pass"


def test_ratios_of_one_row_name_the_settings_that_differ(build: Build, tmp_path: Path) -> None:
    """2x at a batch of 4, 1.25x at a batch of 8: both are written, read and judged by their own rows."""
    run = _two_batches(build, _STRONG)
    write_table(run.table(), tmp_path / "mine.toml")
    table = read_table(tmp_path / "mine.toml")
    assert [(row.count, row.where, row.value) for row in table.rows] == [
        (2, {"batch_size": 4}, 2.0),
        (2, {"batch_size": 8}, 1.25),
    ]
    manifest = dataclasses.replace(run.manifest, tables={"t": table, "k": table})
    assert judged(manifest, run.records).verdict == "pass"


def _two_layouts(build: Build, along: str) -> MeasuredRun:
    """Generation on 1 and 2 GPUs by tensor_parallel, and beside it a benchmark of the same ``along`` an axis."""
    run = MeasuredRun(build)
    one, two, _ = run.manifest.plan.points
    points = [one, two]
    for degree in (1, 2):
        axes: dict[str, AxisValue] = {along: degree}
        point = with_settings(one, **{"tensor_parallel": 1, **axes})
        points.append(dataclasses.replace(point, id=point_id("beside", axes), benchmark="beside", axes=axes))
    decode, _ = run.manifest.suite.benchmarks
    beside = dataclasses.replace(
        decode, name="beside", axes={along: (1, 2)}, expectations=(dataclasses.replace(_STRONG, along=along),)
    )
    suite = dataclasses.replace(run.manifest.suite, benchmarks=(decode, beside))
    run.manifest = dataclasses.replace(run.manifest, suite=suite, plan=Plan(points=tuple(points), skips=()))
    times_s = (4.0, 2.0, 4.0, 2.5)
    run.records = [r for point, time in zip(points, times_s, strict=True) for r in build.measured(point, [[time]] * 3)]
    return run


def test_two_ways_to_use_as_many_gpus_are_two_rows(build: Build) -> None:
    """2x by tensor_parallel, 1.6x by pipeline_parallel: degrees are settings, too."""
    table = _two_layouts(build, "pipeline_parallel").table()
    assert [(row.where, row.value) for row in table.rows] == [
        ({"tensor_parallel": 2, "pipeline_parallel": 1}, 2.0),
        ({"tensor_parallel": 1, "pipeline_parallel": 2}, 1.6),
    ]


def test_two_points_that_no_setting_tells_apart_are_refused(build: Build) -> None:
    """Two benchmarks of the same settings: 1.6 would be held to 2, or a loss of a fifth would pass."""
    run = _two_layouts(build, "tensor_parallel")
    with pytest.raises(UsageError, match=r"decode.*=2\] and beside.*=2\] would have one row, .* equal; .* -k"):
        run.table()
