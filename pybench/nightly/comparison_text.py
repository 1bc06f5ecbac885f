"""A run beside its references, for the terminal: the verdict, what differs, rows by importance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from pybench.core.keys import across_words
from pybench.core.numbers import plain
from pybench.model.figures import Change, ChangeVerdict, RunComparison, RunFigures
from pybench.model.text import plural
from pybench.nightly.comparison import BY_IMPORTANCE
from pybench.report.export.judged import Judged, JudgedRow
from pybench.report.table import Table, printable
from pybench.report.text.change_words import (
    across_options,
    difference_text,
    metric_words,
    percent_text,
    rows_text,
    value_text,
)
from pybench.report.text.labels import joined, labels_of_runs
from pybench.report.text.table import COLOURS, Paper, draw, fits, hanging

_HEADS = ("point", "metric", "before", "now", "change", "difference")
_BEFORE = _HEADS.index("before")
_NAMED = 3
_BRIEF = 60
_UNDECIDED = "the interval reaches across the smallest effect; more attempts or references narrow it"
_NEXT_OF_TWO = (
    "repeat the reference (pybench run SUITE --aa 5), then compare with --history of their folder, or with several "
    "references: how far equal runs differ on this machine decides"
)
_COLOUR = {"regressed": COLOURS["fail"], "improved": COLOURS["pass"], "unchanged": COLOURS["pass"]}


def render(
    comparison: RunComparison, runs: Sequence[RunFigures], *, width: int = 80, color: bool = False, detail: bool = False
) -> str:
    """Draw it. ``runs`` are the references and the run; unchanged rows are only counted without detail."""
    out = Paper(width, color=color)
    names = labels_of_runs(runs)
    _head(out, comparison)
    if not comparison.changes:
        absences: dict[str, dict[str, None]] = {}
        for point in (point for run in runs for point in run.points):
            if point.absence:
                absences.setdefault(point.absence, {})[names.get(point.id, point.id)] = None
        for text, absent in [*absences.items()][:_NAMED]:
            hanging(out, f"no figures of {joined(list(absent))}: {text}")
    for verdict in BY_IMPORTANCE:
        rows = [change for change in comparison.changes if change.verdict == verdict]
        if rows and (detail or verdict != "unchanged"):
            _rows(out, verdict, rows, names)
    added: dict[str, list[str]] = {}
    for row in comparison.added:
        added.setdefault(row.point_id, []).append(metric_words(row.metric))
    if added:
        out.print()
        out.print(Text("New rows, which no reference has", style="bold"))
        for name, metrics in added.items():
            hanging(out, f"  {names.get(name, name)}: {', '.join(metrics)}")
    out.print()
    word, style = _word(comparison.verdict)
    hanging(out, f"verdict: {word} - {reason_text(comparison)}", style=style)
    return out.text()


def _head(out: Console, comparison: RunComparison) -> None:
    out.print(Text.assemble((printable(f"{comparison.suite}: "), "bold"), _word(comparison.verdict)))
    hanging(out, f"run {comparison.run_id} against {', '.join(comparison.reference_ids)}", style="dim")
    for text in comparison.differences:
        hanging(out, f"differs: {text}")
    if comparison.differences:
        hanging(out, f"next: {way_on(comparison)}")
    for text in comparison.wanted:
        hanging(out, f"across: {text}")
    for text in comparison.left_out:
        hanging(out, f"left out: {text}")
    if comparison.num_between:
        hanging(out, f"with the spread between {comparison.num_between} other runs of this machine and software")
    elif comparison.verdict == "differs":
        hanging(out, f"next: {_NEXT_OF_TWO}")


def _word(verdict: ChangeVerdict) -> tuple[str, str]:
    return verdict, _COLOUR.get(verdict, COLOURS["inconclusive"])


def _rows(out: Console, verdict: ChangeVerdict, rows: Sequence[Change], names: Mapping[str, str]) -> None:
    figured = [change for change in rows if change.now is not None]
    title = f"{verdict}: {plural(len(rows), 'row')}"
    if figured:
        table = Table(title, _HEADS, tuple(_cells(change, names) for change in figured))
        if not fits(table, out.width):  # what was before follows from now and the difference
            heads, *cells = ((*line[:_BEFORE], *line[_BEFORE + 1 :]) for line in (table.heads, *table.rows))
            table = Table(title, heads, tuple(cells))
        table = table.without_empty_columns()
        out.print()
        out.print(draw(table, out.width))
        if verdict == "undecided" and any(change.fraction is not None for change in figured):
            hanging(out, f"  {_UNDECIDED}")
    else:
        out.print()
        out.print(Text(f"{title}{' that a reference has' * (verdict == 'not measured')}", style="bold"))
    for reason in dict.fromkeys(change.reason for change in figured or rows if change.reason):
        matches = [change.row for change in figured or rows if change.reason == reason]
        subjects = "all" if len(matches) == len(figured) > 1 else rows_text(matches, names)
        hanging(out, f"  {subjects}: {reason}")


def _cells(change: Change, names: Mapping[str, str]) -> tuple[str, ...]:
    return (
        names.get(change.row.point_id, change.row.point_id),
        metric_words(change.row.metric),
        value_text(change.before, change.unit),
        value_text(change.now, change.unit),
        percent_text(change),
        difference_text(change),
    )


def way_on(comparison: RunComparison) -> str:
    """What to do about runs that differ: the options that would allow it, quoted for a shell."""
    agreeing = "compare runs that agree in these"
    if not (words := across_words(comparison.differences)):
        return agreeing
    return f"{agreeing}, or allow {'it' if len(words) == 1 else 'them'}: {across_options(words)}"


def reason_text(comparison: RunComparison) -> str:
    """What decided the verdict."""
    if comparison.differences:
        # A long one by its key alone: the head has its values.
        shown = comparison.differences[:_NAMED]
        first = [text if len(text) <= _BRIEF else text.partition(":")[0] for text in shown]
        more = len(comparison.differences) - _NAMED
        return "; ".join(first) + (f" (and {more} more)" if more > 0 else "")
    if not comparison.changes:
        return "the runs have no row in common"
    counts = [(verdict, [c for c in comparison.changes if c.verdict == verdict]) for verdict in BY_IMPORTANCE]
    text = ", ".join(f"{len(rows)} {verdict}" for verdict, rows in counts if rows)
    smallest = f"smallest effect {plain(100 * comparison.effects.default)} %"
    return f"of {plural(len(comparison.changes), 'row')}: {text}; {smallest}"


def judged(comparison: RunComparison, runs: Sequence[RunFigures]) -> Judged:
    """The comparison for CI's own pages."""
    names = labels_of_runs(runs)
    rows = []
    for change in comparison.changes:
        point, metric, before, now, percent, _ = _cells(change, names)
        values = f"{before} -> {now}, {percent}" if change.before is not None else ""
        text = "; ".join(filter(None, (values, change.reason)))
        rows.append(JudgedRow(name=f"{point} {metric}", state=change.verdict, text=text))
    return Judged(
        title=f"compare {comparison.suite}",
        run_id=comparison.run_id,
        state=comparison.verdict,
        reason=reason_text(comparison),
        step=way_on(comparison) if comparison.differences else None,
        rows=tuple(rows),
    )
