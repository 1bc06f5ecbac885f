"""A night's decision for the terminal: the state, what all points share, rows by importance, the next step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median

from rich.console import Console
from rich.text import Text

from pybench.core.keys import across_words
from pybench.core.numbers import plain, short_percent, signed_percent
from pybench.model.figures import RunFigures
from pybench.model.text import listed, plural
from pybench.nightly.accepted import entry_text
from pybench.nightly.baseline import MIN_NIGHTS
from pybench.nightly.night_look import SECOND_SPEED
from pybench.nightly.values import BY_IMPORTANCE, GateResult, GateRow, GateState
from pybench.report.export.judged import Judged, JudgedRow
from pybench.report.table import Table, printable
from pybench.report.text.change_words import across_options, metric_words, rows_text, value_text
from pybench.report.text.labels import joined, labels_of_runs
from pybench.report.text.table import COLOURS, Paper, draw, hanging

_HEADS = ("point", "metric", "before", "now", "change", "spread", "since")
_MOST_DIFFERENCES = 6
_COLOUR: dict[GateState, str] = {
    "pass": COLOURS["pass"],
    "improved": COLOURS["pass"],
    "regressed": COLOURS["fail"],
    "not measured": COLOURS["missing"],
}
_NEXT: dict[GateState, str] = {
    "regressed": "compare the software of both sides of the date; a change that is meant goes into accepted.toml",
    "not measured": "see the run's own report; a point that is gone for good goes into accepted.toml",
    "host off": "pybench doctor, and pybench run node_check; without a cause there, what all points share has changed. "
    "Where the host stays so for good, accepted.toml (schema = 1) takes, with a reason:",
    "clock": "look at the power limit and the cooling; the software takes as many cycles as before",
    "undecided": "run the suite again; one more night decides",
    "improved": "a change that is meant goes into accepted.toml: nights are then held to the new level",
    "learning": f"run the suite on more nights; a row is judged from {MIN_NIGHTS} on",
}
_OPTION = re.compile(r"\((--[^)]+)\)")
_OF_MACHINE = frozenset({"gpu", "cpu", "machine"})
"""Keys that differ between two machines."""
_FINISH = "finish the run, if it was interrupted: pybench run --resume RUN; else see its own report"


def render(
    result: GateResult,
    runs: Sequence[RunFigures],
    *,
    width: int = 80,
    color: bool = False,
    unused: Sequence[str] = (),
    detail: bool = False,
) -> str:
    """Draw it. ``runs`` are the night and those before, ``unused`` are lines about entries that do not count.

    Rows that pass are only counted by default, but for those of a second speed.
    """
    out = Paper(width, color=color)
    names = labels_of_runs(runs)
    _head(out, result)
    for text in unused:
        hanging(out, text)
    for state in BY_IMPORTANCE:
        rows = [row for row in result.rows if row.state == state]
        if rows and (detail or state != "pass"):
            _rows(out, state, rows, names)
        elif drawn := [row for row in rows if row.reason == SECOND_SPEED]:
            out.print()
            out.print(Text(f"{state}, though far off: {plural(len(drawn), 'row')}", style="bold"))
            _reasons(out, drawn, names)
        if state == "not measured" and result.unmeasured:
            out.print()
            out.print(Text(f"{state}: {plural(len(result.unmeasured), 'point')} that no night has", style="bold"))
            for point, reason in result.unmeasured:
                hanging(out, f"  {names.get(point, point)}: {reason}")
    out.print()
    if (step := _next(result)) is not None:
        hanging(out, f"next: {step}")
    if result.state == "host off" and result.acceptance is not None:
        for line in entry_text(result.acceptance).splitlines():
            out.print(Text(f"  {printable(line)}"), soft_wrap=True)
    word, style = _word(result.state)
    hanging(out, f"verdict: {word} - {reason_text(result)}", style=style)
    return out.text()


def _next(result: GateResult) -> str | None:
    nothing_else = all(row.state == "not measured" for row in result.rows)
    if result.state == "not measured" and (result.is_unfinished or nothing_else):
        return _FINISH
    return _of_incomparable(result) if result.state == "incomparable" else _NEXT.get(result.state)


def _of_incomparable(result: GateResult) -> str:
    """The next step for a night unlike all earlier nights; nights of another machine are no history of this machine."""
    learns = f"keep the run in the history: its rows are judged from the {MIN_NIGHTS}th such night on"
    options = dict.fromkeys(option for row in result.rows for option in _OPTION.findall(row.reason))
    if options:
        return f"measure again without {listed(options)}; if it is meant for good, {learns}"
    words = across_words(result.differences)
    if not words or not _OF_MACHINE.isdisjoint(words):
        return f"no earlier night is of this machine: {learns}"
    return f"undo the change, or allow it: {across_options(words)}; else {learns}"


def _head(out: Console, result: GateResult) -> None:
    out.print(Text.assemble((printable(f"{result.suite}: "), "bold"), _word(result.state)))
    nights = plural(result.num_nights, "night")
    hanging(out, f"run {result.run_id} against {nights} before it", style="dim")
    for shift in result.host:
        evidence = "; ".join(shift.evidence)
        where = f"at {shift.num_shifted} of {shift.num_points} points"
        since = f"; since {shift.level_change.since}" if shift.level_change else ""
        hanging(out, f"host off: {shift.noun} {signed_percent(shift.fraction)} {where}: {evidence}{since}")
    for text in result.differences[:_MOST_DIFFERENCES]:
        hanging(out, f"left out: nights that differ in {text}")
    if (more := len(result.differences) - _MOST_DIFFERENCES) > 0:
        hanging(out, f"left out: nights that differ in {more} more keys or values")
    if result.broken:
        hanging(out, f"left out: {plural(len(result.broken), 'broken night')}, the last {result.broken[-1]}")
    if result.num_later:
        hanging(
            out,
            f"left out: {plural(result.num_later, 'night')} later than this run; if it is the newest, check the clock",
        )
    if result.note:
        hanging(out, result.note)


def _rows(out: Console, state: GateState, rows: Sequence[GateRow], names: Mapping[str, str]) -> None:
    title = f"{state}: {plural(len(rows), 'row')}"
    out.print()
    if any(row.before is not None for row in rows):
        heads = _HEADS if any(row.level_change for row in rows) else _HEADS[:-1]
        table = Table(title, heads, tuple(_cells(row, names)[: len(heads)] for row in rows))
        out.print(draw(table, out.width))
        noted: dict[str, list[str]] = {}
        for row in rows:
            noted.setdefault(_notes(row), []).append(f"{names[row.row.point_id]} {metric_words(row.row.metric)}")
        for text, subjects in noted.items():
            if text:
                hanging(out, f"  {joined(subjects)}: {text}")
        return
    out.print(Text(title, style="bold"))
    _reasons(out, rows, names)


def _reasons(out: Console, rows: Sequence[GateRow], names: Mapping[str, str]) -> None:
    """Each reason once, with its rows."""
    for reason in dict.fromkeys(row.reason for row in rows):
        matches = (row.row for row in rows if row.reason == reason)
        hanging(out, f"  {rows_text(matches, names)}: {reason}")


def _cells(row: GateRow, names: Mapping[str, str]) -> tuple[str, ...]:
    change = "-" if row.fraction is None else signed_percent(row.fraction)
    return (
        names.get(row.row.point_id, row.row.point_id),
        metric_words(row.row.metric),
        value_text(row.before, row.unit),
        value_text(row.now, row.unit),
        change,
        "-" if row.spread_fraction is None else short_percent(row.spread_fraction),
        "-" if row.level_change is None else row.level_change.since,
    )


def _notes(row: GateRow) -> str:
    parts = [row.reason]
    if row.state == "regressed" and row.nights_as_far[1]:
        parts.append(row.as_far_text)
    if row.num_recent > 1 and row.state in {"regressed", "improved", "clock"}:
        parts.append(f"the mean of the last {row.num_recent} nights")
    if row.level_change is not None and row.level_change.earliest != row.level_change.latest:
        parts.append(f"the level changed between {row.level_change.earliest} and {row.level_change.latest}")
    if row.confirmation == "not confirmed" and row.state == "regressed":
        parts.append("not confirmed by a rerun")
    return "; ".join(filter(None, parts))


def _word(state: GateState) -> tuple[str, str]:
    return state, _COLOUR.get(state, COLOURS["inconclusive"])


def judged(result: GateResult, runs: Sequence[RunFigures]) -> Judged:
    """The night for CI's own pages."""
    names = labels_of_runs(runs)
    rows = []
    for row in sorted(result.rows, key=lambda row: BY_IMPORTANCE.index(row.state)):
        point, metric, before, now, change, *_ = _cells(row, names)
        values = f"{before} -> {now}{'' if row.fraction is None else f', {change}'}" if row.before is not None else ""
        text = "; ".join(filter(None, (values, _notes(row))))
        rows.append(JudgedRow(name=f"{point} {metric}", state=row.state, text=text))
    rows += [JudgedRow(name=names.get(p, p), state="not measured", text=reason) for p, reason in result.unmeasured]
    return Judged(
        title=f"gate {result.suite}",
        run_id=result.run_id,
        state=result.state,
        reason=reason_text(result),
        step=_next(result),
        rows=tuple(rows),
    )


def reason_text(result: GateResult) -> str:
    """How many rows have each state."""
    if not result.rows:
        return "no row was measured"
    counts = [(state, sum(row.state == state for row in result.rows)) for state in BY_IMPORTANCE]
    text = ", ".join(f"{count} {state}" for state, count in counts if count)
    fractions = [row.detectable_fraction for row in result.rows if row.detectable_fraction is not None]
    seen = ""
    if fractions:
        seen = f"; one night finds {short_percent(median(fractions))} (median row) to {short_percent(max(fractions))}"
    points = f", {plural(len(result.unmeasured), 'point')} not measured" if result.unmeasured else ""
    return f"of {len(result.rows)} rows: {text}{points}; smallest effect {plain(100 * result.effects.default)} %{seen}"
