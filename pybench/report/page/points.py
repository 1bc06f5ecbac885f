"""The page's table of points: texts with the numbers to sort them by."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.core.numbers import interval, limits, quantity, quantity_with_interval
from pybench.model.results import Estimate, PointResult, Results, ScalingResult
from pybench.report.run.expectations import NONE, Expectations
from pybench.report.run.flags import relevant
from pybench.report.run.headline import energy, headline, headline_name
from pybench.report.table import NOTHING
from pybench.report.text.labels import short_labels

_RANK = (
    *("failed", "fail", "error", "regressed", "missing", "not measured", "inconclusive", "undecided", "incomparable"),
    *("skipped", "-", "improved", "pass", "unchanged"),
)


@dataclass(frozen=True)
class Cell:
    """Text, the number that orders the column (``None`` stands last), and an interval in small print."""

    text: str
    order: float | None = None
    note: str = ""


@dataclass(frozen=True)
class PointRow:
    """One point: its cells, its verdict, the flags that matter."""

    verdict: str
    cells: tuple[Cell, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True)
class PointTable:
    """Heads and rows, without columns that are empty in every row."""

    heads: tuple[str, ...]
    rows: tuple[PointRow, ...]


def point_table(results: Results) -> PointTable:
    """Every point of the suite, measured or not."""
    names = short_labels(results.points, with_benchmark=True)
    heads = ("point", "GPUs", "attempts", "throughput", "speedup", "expected", "first token", "energy", "power")
    wanted = Expectations.of(results)
    rows = [
        PointRow(wanted.verdict(p), _cells(wanted, p, names[p.id], n), relevant(p))
        for n, p in enumerate(results.points)
    ]
    used = [i for i in range(len(heads)) if i < 2 or any(row.cells[i].text not in NOTHING for row in rows)]  # noqa: PLR2004
    kept = tuple(PointRow(row.verdict, tuple(row.cells[i] for i in used), row.flags) for row in rows)
    return PointTable(tuple(heads[i] for i in used), kept)


def verdict_rank(verdict: str) -> int:
    """The worst first."""
    return _RANK.index(verdict) if verdict in _RANK else len(_RANK)


def _cells(wanted: Expectations, point: PointResult, name: str, number: int) -> tuple[Cell, ...]:
    row = wanted.ratio(point)
    good = point.attempts - point.failed_attempts
    return (
        Cell(name, number),
        Cell(str(point.num_gpus), point.num_gpus),
        Cell(f"{good} of {point.attempts}" if point.attempts else "-", good),
        _figure(headline(point), with_interval=True),
        _speedup(row),
        Cell(_expected(wanted, point, row)),
        _figure(point.metrics.get("ttft_s")),
        _figure(energy(point), with_interval=True),
        _figure(point.metrics.get("mean_power_w")),
    )


def _figure(found: Estimate | None, *, with_interval: bool = False) -> Cell:
    text, bracket, ends = (quantity_with_interval(found) if with_interval else quantity(found)).partition(" [")
    return Cell(text, None if found is None else found.value, f"[{ends}" if bracket else "")


def _speedup(row: ScalingResult | None) -> Cell:
    if row is None or row.speedup is None:
        return Cell(NONE)
    return Cell(f"{row.speedup:.3f}", row.speedup, interval(row.speedup_low, row.speedup_high))


def _expected(wanted: Expectations, point: PointResult, row: ScalingResult | None) -> str:
    if row is not None and row.expected is not None:
        return limits(row.expected.minimum, row.expected.maximum)
    check = wanted.check(point, headline_name(point))
    if check is None or check.value is None:
        return NONE
    return limits(check.minimum, check.maximum, check.value.unit)


def verdicts(table: PointTable) -> tuple[str, ...]:
    """Verdicts that rows of the table have, the worst first."""
    return tuple(sorted({row.verdict for row in table.rows}, key=verdict_rank))
