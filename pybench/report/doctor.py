"""What the doctor found, with remedies."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.machine import Finding


def render(findings: Sequence[Finding]) -> str:
    """One line for each finding, its remedy below it."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{finding.state:8} {finding.name:{width}}  {finding.found}")
        if finding.remedy:
            lines.append(f"{'':8} {'':{width}}  -> {finding.remedy}")
    return "\n".join(lines) + "\n"
