"""A verdict on the whole run, of no point of its own."""

from __future__ import annotations

from pybench.model.results import NodeCheck
from pybench.model.verdict import Verdict


def run_check(name: str, subject: str, verdict: Verdict, reason: str) -> NodeCheck:
    """Judged by what the driver reports, without a figure and a limit."""
    return NodeCheck(
        name=name, subject=subject, point_id=None, value=None, limit=None, unit="", verdict=verdict, reason=reason
    )


def unknown(name: str, reason: str) -> NodeCheck:
    """Visible, and neither pass nor fail."""
    return run_check(name, "all GPUs", "no_expectation", reason)
