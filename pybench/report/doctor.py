"""What the doctor found, with remedies."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from pybench.model.machine import DoctorFinding
from pybench.model.text import plural
from pybench.report.text.printable import printable

_LEAST_ROOM = 20
"""Columns that a finding has beside its name, however narrow the terminal."""


def render(findings: Sequence[DoctorFinding], *, width: int = 80) -> str:
    """Whether runs can be made here, then a line for each finding, its remedy below it."""
    names = max((len(finding.name) for finding in findings), default=0)
    lines = [_verdict(findings)]
    for finding in findings:
        head = f"{finding.state:8} {finding.name:{names}}  "
        for number, line in enumerate(_texts(finding, max(width - len(head), _LEAST_ROOM))):
            lines.append(f"{head if number == 0 else ' ' * len(head)}{line}".rstrip())
    return "\n".join(lines) + "\n"


def _verdict(findings: Sequence[DoctorFinding]) -> str:
    warnings = sum(finding.state == "warning" for finding in findings)
    counted = plural(warnings, "warning") if warnings else "no warnings"
    missing = ", ".join(finding.name for finding in findings if finding.state == "missing")
    return f"not ready, missing: {missing}; {counted}" if missing else f"ready; {counted}"


def _texts(finding: DoctorFinding, room: int) -> Iterator[str]:
    yield from _wrapped(finding.found, room) or [""]
    if finding.remedy:
        yield from _wrapped(f"-> {finding.remedy}", room, "   ")


def _wrapped(text: str, room: int, indent: str = "") -> list[str]:
    """Paths and commands stay whole."""
    return textwrap.wrap(
        printable(text), room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
