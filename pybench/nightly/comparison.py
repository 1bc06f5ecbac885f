"""A run against its references: which may be compared, every row's change, the worst verdict."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from pybench.cli.exit_codes import INCOMPARABLE
from pybench.core.keys import check_across, differing, point_difference
from pybench.core.plan import parse_filter
from pybench.core.statistics.spread import Variance
from pybench.core.statistics.units import MIN_UNITS
from pybench.model.errors import UsageError
from pybench.model.figures import (
    NOT_ALONE,
    Change,
    ChangeVerdict,
    FigureKey,
    PointFigures,
    RunComparison,
    RunFigures,
    SmallestEffects,
)
from pybench.model.workloads.registry import METRICS
from pybench.nightly.change import Sides, between_runs, changes_of

EXIT_CODES: dict[ChangeVerdict, int] = {
    "regressed": 1,
    "differs": 5,
    "not measured": 1,
    "incomparable": INCOMPARABLE,
    "undecided": 4,
    "improved": 0,
    "unchanged": 0,
}
BY_IMPORTANCE: tuple[ChangeVerdict, ...] = tuple(EXIT_CODES)
_CLOCK_FRACTION = 0.01


def compare(
    run: RunFigures,
    references: Sequence[RunFigures],
    *,
    across: Collection[str] = (),
    effects: SmallestEffects | None = None,
    others: Sequence[RunFigures] = (),
) -> RunComparison:
    """Compare ``run`` with one reference or more.

    ``others`` are runs of the same machine: with one reference, runs that agree with it in every key show the spread
    between runs. Raises ``UsageError`` where ``across`` names no key, and where a run is given twice.
    """
    effects = effects or SmallestEffects()
    check_across(across, {name for figures in (run, *references) for name in figures.keys})
    _check_apart(run, references)
    apart = [(reference, differing(reference, run, across)) for reference in references]
    usable = [reference for reference, texts in apart if not texts]
    shown = RunComparison(
        run_id=run.run_id,
        suite=run.suite,
        reference_ids=tuple(reference.run_id for reference in references),
        verdict="incomparable",
        changes=(),
        effects=effects,
    )
    if not usable:
        return replace(shown, differences=tuple(dict.fromkeys(text for _, texts in apart for text in texts)))
    alike = _alike(run, usable[0], others) if len(usable) == 1 else []
    found = _changes(run, usable, across, effects, between_runs(alike))
    changes = tuple(sorted(found, key=lambda change: (BY_IMPORTANCE.index(change.verdict), -abs(change.fraction or 0))))
    known = {row for reference in usable for row in rows_of(reference)}
    return replace(
        shown,
        reference_ids=tuple(reference.run_id for reference in usable),
        verdict=overall(changes),
        changes=changes,
        added=tuple(row for row in rows_of(run) if row not in known),
        wanted=tuple(dict.fromkeys(text for reference in usable for text in differing(reference, run))),
        left_out=tuple(f"{reference.run_id}: {'; '.join(texts)}" for reference, texts in apart if texts),
        num_between=len(alike) if len(alike) >= MIN_UNITS else 0,
    )


def _alike(
    run: RunFigures, reference: RunFigures, others: Sequence[RunFigures]
) -> list[dict[FigureKey, tuple[float, ...]]]:
    """Attempts' medians of the other runs that agree with the reference in every key and point."""
    points = {point.id: point for point in reference.points}
    rows = []
    for other in others:
        if other.identity in {run.identity, reference.identity} or differing(reference, other):
            continue
        same = [p for p in other.points if p.id in points and p.is_alone and not point_difference(points[p.id], p)]
        rows.append({FigureKey(p.id, metric): medians for p in same for metric, medians in p.medians.items()})
    return [row for row in rows if row]


def _check_apart(run: RunFigures, references: Sequence[RunFigures]) -> None:
    """A run that is counted twice looks like two nights that agree."""
    seen = {run.identity}
    for reference in references:
        if reference.identity == run.identity:
            raise UsageError(f"{reference.run_id} is the run itself; give another run as the reference")
        if reference.identity in seen:
            raise UsageError(f"{reference.run_id} is given twice as a reference; give each run once")
        seen.add(reference.identity)


def overall(changes: Sequence[Change]) -> ChangeVerdict:
    """The most important verdict. Rows that improved do not make a run of others improve; no row is no verdict."""
    verdicts = {change.verdict for change in changes}
    if verdicts <= {"improved", "unchanged"}:
        return "incomparable" if not verdicts else "unchanged" if "unchanged" in verdicts else "improved"
    return next(verdict for verdict in BY_IMPORTANCE if verdict in verdicts)


def rows_of(run: RunFigures) -> Iterator[FigureKey]:
    """Every row that a run measured and that this pybench knows."""
    for point in run.points:
        yield from (FigureKey(point.id, metric) for metric in point.medians if metric in METRICS)


def absence_of(row: FigureKey, run: RunFigures) -> str:
    """Why a run does not have a row."""
    point = next((point for point in run.points if point.id == row.point_id), None)
    if point is not None:
        return point.absence or "this metric was not measured"
    if run.kept_by is not None:
        with suppress(ValueError, UsageError):  # a file can hold any text
            _, text = shlex.split(run.kept_by)
            if not parse_filter(text)(row.point_id):
                return f"left out by {run.kept_by}"
    return "the suite has no such point now"


def _changes(
    run: RunFigures,
    references: Sequence[RunFigures],
    across: Collection[str],
    effects: SmallestEffects,
    between: Mapping[FigureKey, Variance],
) -> Iterator[Change]:
    now = {point.id: point for point in run.points}
    before = [{point.id: point for point in reference.points} for reference in references]
    comparable: dict[FigureKey, Sides] = {}
    for row in dict.fromkeys(row for reference in references for row in rows_of(reference)):
        ours = now.get(row.point_id)
        theirs = [point for by_id in before if (point := by_id.get(row.point_id)) and row.metric in point.medians]
        other = Change(row=row, unit=METRICS[row.metric].unit, verdict="not measured")
        if ours is None or row.metric not in ours.medians:
            yield replace(other, reason=absence_of(row, run))
        elif texts := [text for point in theirs if (text := point_difference(point, ours, across))]:
            yield replace(other, verdict="incomparable", reason=texts[0])
        else:
            comparable[row] = Sides(ours.medians[row.metric], tuple(point.medians[row.metric] for point in theirs))
    smallest = {metric: effects.of(metric) for metric in {row.metric for row in comparable}}
    for row, change in changes_of(comparable, smallest, between).items():
        points = [by_id[row.point_id] for by_id in before if row.point_id in by_id]
        if all(point.is_alone for point in (*points, now[row.point_id])):
            yield _with_clock(change, points, now[row.point_id])
        else:
            yield replace(change, verdict="undecided", reason=NOT_ALONE)


def clock_text(before_hz: float, now: PointFigures) -> str:
    """The clock before and now, and what held it."""
    held = f", held by {', '.join(now.held_by)}" if now.held_by else ""
    return f"SM clock {before_hz / 1e6:.0f} -> {(now.sm_clock_hz or 0.0) / 1e6:.0f} MHz{held}"


def _with_clock(change: Change, before: Sequence[PointFigures], now: PointFigures) -> Change:
    """A change with the clocks beside it, where those differ."""
    was_hz, is_hz = before[-1].sm_clock_hz, now.sm_clock_hz
    if not was_hz or not is_hz or abs(is_hz / was_hz - 1) < _CLOCK_FRACTION or change.verdict == "unchanged":
        return change
    text = clock_text(was_hz, now)
    return replace(change, reason=f"{change.reason}; {text}" if change.reason else text)
