"""A history of runs: every row's trend for the terminal, and every figure as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from rich.text import Text

from pybench.core.numbers import plain, signed_percent
from pybench.model.figures import RunFigures
from pybench.model.text import abridged, listed, plural
from pybench.model.workloads.registry import METRICS
from pybench.nightly.comparison import rows_of
from pybench.nightly.history import History, Series, Trend, trends
from pybench.report.export.comma_separated import csv_cell
from pybench.report.table import Table, printable
from pybench.report.text.change_words import metric_words, sparkline, value_text
from pybench.report.text.labels import labels_of_runs
from pybench.report.text.table import Paper, draw, fits, hanging

_MOST_SKIPPED = 5
_MOST_NAMES = 3
_WIDTHS = (30, 20, 12)
CSV_HEADS = (
    *("run_id", "created_utc", "suite", "verdict", "point", "benchmark", "num_gpus", "metric", "unit", "value"),
    *("num_attempts", "attempt_medians", "sm_clock_hz", "digest", "axes", "keys", "part_of"),
)


def render(history: History, series: Series, *, width: int = 80, color: bool = False) -> str:
    """Draw the trends of a series, and name what is not in it."""
    out = Paper(width, color=color)
    first, last = series.runs[0], series.last
    runs = plural(len(series.runs), "run")
    days = " to ".join(dict.fromkeys((first.created_utc[:10], last.created_utc[:10])))
    out.print(Text(printable(f"{last.suite}: {runs}, {days}"), style="bold"))
    if last.part_of is not None:
        hanging(out, f"runs of --{last.part_of}, taken within hours; nights differ by more")
    for line in left_out(history, series):
        hanging(out, line)
    all_trends = tuple(trends(series))
    drawn = [_table(series, all_trends, room) for room in _WIDTHS]
    table = next((table for table in drawn if fits(table, width)), drawn[-1])
    if table.rows:
        out.print()
        out.print(draw(table.without_empty_columns(), width))
    else:
        cause = "nothing was measured, or an old version wrote its results"
        hanging(out, f"no figures of attempts: {cause}, which `pybench report RUN --format json` writes again")
    return out.text()


def left_out(history: History, series: Series) -> Iterator[str]:
    """Runs and entries that are not in a series, with the reason."""
    others = Counter(run.suite for run in history.runs if run.suite != series.last.suite)
    apart = [*series.apart.items()]
    for text, count in apart[:_MOST_SKIPPED]:
        yield f"left out: {plural(count, 'run')} that differ{'s' * (count == 1)} in {text}"
    if (more := len(apart) - _MOST_SKIPPED) > 0:
        yield f"left out: others that differ in {more} more keys or values"
    kinds = (run.part_of for run in history.runs if run.suite == series.last.suite)
    if parts := Counter(part for part in kinds if part not in {None, series.last.part_of}):
        several = listed(f"{count} of --{name}" for name, count in sorted(parts.items()))
        yield f"left out: {several}, which are no nights"
    if series.broken:
        yield f"left out: {len(series.broken)} whose verdict was bad"
    if others:
        names = ", ".join(f"{name} ({count})" for name, count in others.most_common())
        yield f"other suites: {names}"
    yield from skipped(history)


def skipped(history: History) -> Iterator[str]:
    """Entries of a history's folder that are no run, with the reason."""
    names: dict[str, list[str]] = {}
    for name, reason in history.skipped:
        names.setdefault(reason, []).append(name)
    for reason, entries in [*names.items()][:_MOST_SKIPPED]:
        yield f"skipped: {abridged(entries, _MOST_NAMES)}: {reason}"
    if more := sum(len(entries) for entries in [*names.values()][_MOST_SKIPPED:]):
        yield f"skipped: {more} more"


def no_run(history: History, suite: str | None = None) -> str:
    """That a folder has no run, or none of a suite, with the entries that were skipped."""
    others = ", ".join(sorted({run.suite for run in history.runs}))
    there = f"no run of {suite}; there are {others}"
    what = there if others else "no run here; give the folder of `pybench run --runs`"
    return "\n".join((f"{history.folder}: {what}", *skipped(history)))


def _table(series: Series, all_trends: Sequence[Trend], room: int) -> Table:
    names = labels_of_runs(series.runs)
    rows = []
    for trend in all_trends:
        line = sparkline(trend.values, room) if len(trend.values) > 1 else "-"
        rows.append((names[trend.row.point_id], metric_words(trend.row.metric), line, *trend_cells(trend)))
    return Table("", ("point", "metric", "trend", "last", "change", "spread"), tuple(rows))


def trend_cells(trend: Trend) -> tuple[str, str, str]:
    """The last value, its change, and the spread."""
    last, spread = trend.values[-1], trend.spread_fraction
    return (
        "not measured" if last is None else value_text(last, METRICS[trend.row.metric].unit),
        "-" if trend.fraction is None else signed_percent(trend.fraction),
        "-" if spread is None else f"{plain(100 * spread, 2)} %",
    )


def csv_text(runs: Sequence[RunFigures]) -> str:
    """One line for each run, point and metric, for pandas, DuckDB and spreadsheets."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_HEADS)
    for run in runs:
        points = {point.id: point for point in run.points}
        keys = json.dumps(run.keys, sort_keys=True)
        for row in rows_of(run):
            point, medians = points[row.point_id], points[row.point_id].medians[row.metric]
            of_run = (run.run_id, run.created_utc, run.suite, run.verdict)
            of_point = (point.id, point.benchmark, point.num_gpus)
            figures = (row.metric, METRICS[row.metric].unit, median(medians), len(medians), json.dumps(medians))
            known = (point.sm_clock_hz, point.digest, json.dumps(point.axes), keys, run.part_of)
            writer.writerow(map(csv_cell, (*of_run, *of_point, *figures, *known)))
    return stream.getvalue()


@dataclass(frozen=True)
class HistoryRun:
    """A run and when it began."""

    run_id: str
    created_utc: str


@dataclass(frozen=True)
class HistoryRow:
    """A row with its value in each run, ``None`` where it was not measured."""

    point: str
    metric: str
    unit: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class SuiteHistory:
    """What ``pybench history --format json`` prints."""

    suite: str
    runs: tuple[HistoryRun, ...]
    rows: tuple[HistoryRow, ...]


def suite_history(series: Series) -> SuiteHistory:
    """Runs and rows of a series as values."""
    rows = (HistoryRow(*row, METRICS[row.metric].unit, tuple(series.values(row))) for row in series.rows)
    runs = (HistoryRun(run.run_id, run.created_utc) for run in series.runs)
    return SuiteHistory(series.last.suite, tuple(runs), tuple(rows))
