"""The report people read first: the verdict, one row a point, what to do next; every table with ``detail``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from pybench.model.results import Results
from pybench.model.text import plural
from pybench.report.run.findings import (
    MOST_SUBJECTS,
    Finding,
    by_part,
    each_step_once,
    findings,
    judged_sentence,
    not_judged,
    not_run,
)
from pybench.report.run.flags import legend, relevant
from pybench.report.run.more_attempts import decided_sentence
from pybench.report.run.overview import Group, groups, overviews, parts
from pybench.report.run.rows import comparisons, tables
from pybench.report.run.view import RunView, changes, sentence
from pybench.report.run.work import claims, job_table
from pybench.report.table import Table, printable, wrapped
from pybench.report.text.labels import short_labels, verdict_words
from pybench.report.text.table import COLOURS, Paper, draw, fits, hanging

_COMMAND = re.compile(r"(?<=:) (?=(?:pybench|nvidia-smi|dcgmi|dmesg|lspci|pip) )|; (?=if it stays)|, then (?=pybench )")
_IN_OVERVIEW = ("speedup", "expected", "energy", "verdict")
"""Columns of the points that the overview shows as well."""


def render(view: RunView, *, width: int = 80, color: bool = False, detail: bool = False) -> str:
    """Draw the report. Colour repeats the words."""
    out, results = Paper(width, color=color), view.results
    names = short_labels(results.points, with_benchmark=True)
    _head(out, view, detail=detail)
    for group in groups(results):
        _group(out, results, group, width)
    if not detail:
        job = job_table(results, names).without_empty_columns()
        for table in (comparisons(results, names), job, claims(results, names)):
            out.table(table)
    most = len(results.points) + len(results.node) if detail else MOST_SUBJECTS
    _listed(out, "What did not pass", each_step_once(findings(view)), most, is_named=True)
    _listed(out, "Not judged", not_judged(view), most)
    _listed(out, "Not run", not_run(results), most)
    for number, table in enumerate(tables(results, names) if detail else ()):
        out.table(table if number else table.without(_IN_OVERVIEW))
    out.print()
    hanging(out, f"verdict: {verdict_words(view.state)} - {view.reason}", style=COLOURS.get(view.state, ""))
    return out.text()


def _head(out: Console, view: RunView, *, detail: bool) -> None:
    results, state = view.results, (verdict_words(view.state), COLOURS.get(view.state, ""))
    out.print(Text.assemble((printable(f"{results.suite} on {results.machine}: "), "bold"), state))
    profile = f", profile {results.profile}" if results.profile else ""
    lines = (
        (decided_sentence(view), ""),
        (judged_sentence(results), ""),
        (results.description, ""),
        (f"run {results.run_id}{profile}", "dim"),
        (changes(results.options), ""),
        (sentence(results.provenance, detail=detail), "dim"),
    )
    for text, style in lines:
        if text:
            out.print(Text(printable(text), style=style))


def _group(out: Console, results: Results, group: Group, width: int) -> None:
    whole, narrower = _overview(results, group, width)
    # Names within one benchmark are shorter, which may leave room for the figures that were left out.
    apart = len(whole.heads) < len(narrower.heads) if len(group.benchmarks) > 1 else not fits(whole, width)
    for part in parts(group) if apart else (group,):
        table = whole if part is group else _overview(results, part, width)[0]
        title = f"{table.title}: {'; '.join(part.shared)}" if part.shared else table.title
        out.print()
        if cell_len(title) > width:
            out.print(Text(printable(table.title), style="bold"))
            for line in part.shared:
                hanging(out, f"  {line}")
            title = ""
        out.print(draw(replace(table, title=title), width))
    for flag, meaning in legend([flag for point in group.points for flag in relevant(point)]):
        hanging(out, f"  {group.letters[flag]} {flag}: {meaning}")


def _overview(results: Results, group: Group, width: int) -> tuple[Table, Table]:
    """The fullest table that fits, else the narrowest; and the one without columns that give way."""
    tables = overviews(results, group)
    return next((table for table in tables if fits(table, width)), tables[-1]), tables[1]


def _listed(out: Console, title: str, found: Sequence[Finding], most: int, *, is_named: bool = False) -> None:
    """The findings by part; each with its verdict where it ``is_named``."""
    for part, of_part in by_part(found):
        out.print()
        out.print(Text(f"{title}: {part}" if part else title, style="bold"))
        for finding in of_part:
            word = f"{verdict_words(finding.verdict)} " if is_named else ""
            hanging(out, f"  {word}{finding.text(most)}", style=COLOURS.get(finding.verdict, ""))
            for line in finding.evidence[:most]:
                hanging(out, f"      {line}")
            if len(finding.evidence) > most:
                hanging(out, f"      and {plural(len(finding.evidence) - most, 'more figure')}, with -v")
            if finding.step:
                _step(out, f"next: {finding.step}")


def _step(out: Console, step: str) -> None:
    """On one line, or with each command on its own: a folded one can be copied, too."""
    if cell_len(step) + 4 <= out.width:
        hanging(out, f"    {step}")
        return
    for number, line in enumerate(_COMMAND.split(step)):
        is_folded = number and not line.endswith(":") and "'" not in line
        rows = " \\\n  ".join(wrapped(line, out.width - 10)).splitlines() if is_folded else [line]
        for row in rows:
            hanging(out, f"{' ' * (6 if number else 4)}{row}")
