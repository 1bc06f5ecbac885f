"""Joint rules of a manifest's values: without them its run can't be judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pybench import __version__
from pybench.core.plan import parse_required
from pybench.files.reader import utc_time
from pybench.files.suite.own_files import config_digest
from pybench.model.errors import RunFolderError, UsageError
from pybench.model.manifest import MOST_TIME_S, Manifest
from pybench.model.record import Record
from pybench.model.suite import Limits, Point, Scaling, Skip, table_of
from pybench.model.workloads.registry import METRICS_OF
from pybench.model.workloads.settings import Range

Breach = tuple[str, str]


def require_planned(path: Path, manifest: Manifest, records: Sequence[Record]) -> None:
    """Refuse records of other settings than the plan's, naming the file at fault. Raises ``RunFolderError``."""
    known = manifest.plan.digests
    fitting = {record.point_id for record in records if known.get(record.point_id) == record.point_digest}
    for number, record in enumerate(records, start=1):
        if known.get(record.point_id, record.point_digest) == record.point_digest:
            continue
        if record.point_id in fitting:
            place = f"{path / 'journal.jsonl'}:{number}"
            raise RunFolderError(f"{place}: {record.point_id} was measured with other settings than the manifest has")
        versions = f"the run's is {manifest.pybench_version}, this is {__version__}"
        raise RunFolderError(
            f"{path / 'manifest.json'}: {record.point_id} was measured with other settings, or by another pybench "
            f"({versions}): report it with that one, or start a new run"
        )


def breaches(manifest: Manifest) -> Iterator[Breach]:
    """Every rule that a manifest breaks, suite before plan."""
    try:
        utc_time(manifest.created_utc)
    except ValueError as error:
        yield "created_utc", str(error)
    try:
        parse_required(manifest.options.require)
    except UsageError as error:
        yield "options.require", str(error)
    limit_s = manifest.options.time_limit_s
    if limit_s is not None and not 0 < limit_s <= MOST_TIME_S:
        yield "options.time_limit_s", f"{limit_s:g} is no time limit, which is above 0 s and at most {MOST_TIME_S} s"
    yield from _of_suite(manifest)
    for name, table in manifest.tables.items():
        for number, row in enumerate(table.rows):
            key = f"tables.{name}.rows.{number}"
            yield from _of_numbers(key, row)
            if row.limits == (None, None):
                yield key, "has no value, minimum or maximum"
    yield from _of_plan(manifest)


def _of_suite(manifest: Manifest) -> Iterator[Breach]:
    for number, benchmark in enumerate(manifest.suite.benchmarks):
        if benchmark.workload not in METRICS_OF:
            yield f"suite.benchmarks.{number}.workload", f"{benchmark.workload!r} is no workload of this pybench"
            continue
        yield from _of_numbers(f"suite.benchmarks.{number}.effort", benchmark.effort)
        for place, expectation in enumerate(benchmark.expectations):
            key = f"suite.benchmarks.{number}.expectations.{place}"
            # A comparison may name a benchmark that the profile omits: it has no rows then.
            if (table := table_of(expectation)) is not None and table not in manifest.tables:
                yield "tables", f"holds no table {table!r}, which {key} names"
            if expectation.metric not in METRICS_OF[benchmark.workload]:
                yield f"{key}.metric", f"{expectation.metric!r} is no metric of workload {benchmark.workload}"
            yield from _of_numbers(key, expectation)
            if isinstance(expectation, Limits) and expectation.minimum is None and expectation.maximum is None:
                yield key, "has no minimum and no maximum"
            if isinstance(expectation, Scaling) and not benchmark.axes.get(expectation.along):
                yield f"{key}.along", f"the benchmark has no values of {expectation.along!r}"
    for name, architecture in manifest.suite.own_models.items():
        if name.rpartition("@")[2] != (digest := config_digest(architecture)):
            yield f"suite.own_models.{name}", f"its config has the digest {digest}"


def _of_plan(manifest: Manifest) -> Iterator[Breach]:
    plan = manifest.plan
    if plan.rates_run is not None and (plan.rates_run in {"", ".", ".."} or {"/", "\0"} & set(plan.rates_run)):
        yield "plan.rates_run", f"{plan.rates_run!r} is no name of a run"
    yield from _of_counts(manifest)
    for number, point in enumerate(plan.points):
        yield from _of_numbers(f"plan.points.{number}.effort", point.effort)
        yield from _of_numbers(f"plan.points.{number}.settings", point.settings)
        if point.job is not None:
            yield from _of_numbers(f"plan.points.{number}.job", point.job)
        try:
            _ = point.shape
        except KeyError as error:
            yield f"plan.points.{number}.architecture", f"has no {error}"
        except (ValueError, TypeError, ArithmeticError) as error:
            yield f"plan.points.{number}.architecture", str(error)


def _of_numbers(key: str, values: Any) -> Iterator[Breach]:  # noqa: ANN401 - any class with limits
    """Numbers beyond the limits that a suite file has for them: what runs so often, or is so large, never ends."""
    for name, limits in _limits(values.__class__).items():
        value = getattr(values, name)
        if not isinstance(value, int | float):
            continue
        if limits.minimum is not None and not value >= limits.minimum:
            yield f"{key}.{name}", f"{value} is below {limits.minimum}, the least that a suite may have"
        if limits.maximum is not None and not value <= limits.maximum:
            yield f"{key}.{name}", f"{value} is above {limits.maximum}, the most that a suite may have"


@cache
def _limits(kind: type) -> dict[str, Range]:
    """Limits of a class's fields, from the suite file's schema."""
    hints = get_type_hints(kind, include_extras=True)
    ranges = {name: next((n for n in get_args(hint) if isinstance(n, Range)), None) for name, hint in hints.items()}
    return {name: limits for name, limits in ranges.items() if limits is not None}


def _of_counts(manifest: Manifest) -> Iterator[Breach]:
    benchmarks, plan = {benchmark.name: benchmark for benchmark in manifest.suite.benchmarks}, manifest.plan
    kinds: dict[str, tuple[Point | Skip, ...]] = {"points": plan.points, "skips": plan.skips, "left_out": plan.left_out}
    places = [
        (f"plan.{name}.{number}", entry) for name, entries in kinds.items() for number, entry in enumerate(entries)
    ]
    for key, entry in places:
        if (benchmark := benchmarks.get(entry.benchmark)) is None:
            continue
        counted = {expectation.along for expectation in benchmark.expectations if isinstance(expectation, Scaling)}
        for axis in counted & {*entry.axes, *benchmark.axes}:
            for value in (*benchmark.axes.get(axis, ()), *([entry.axes[axis]] if axis in entry.axes else [])):
                if not isinstance(value, int) or value < 1:
                    yield f"{key}.axes.{axis}", f"scaling runs along it, and {value!r} is no count"
