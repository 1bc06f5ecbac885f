"""Headline and judged metrics for trackers: Bencher and github-action-benchmark.

Bencher Metric Format is ``{benchmark: {measure: {value, lower_value, upper_value}}}``. github-action-benchmark has one
direction of better for a file, so there are two files.
"""

from __future__ import annotations

import json
from pathlib import Path

from pybench.core.numbers import spread
from pybench.model.errors import UsageError, fault_text
from pybench.model.results import Results
from pybench.model.workloads.registry import METRICS
from pybench.report.run.headline import tracked
from pybench.report.run.view import RunView
from pybench.report.table import printable

BIGGER, SMALLER = "bigger_is_better.json", "smaller_is_better.json"
_ENDS = ("value", "lower_value", "upper_value")


def render(view: RunView) -> str:
    """Headline and judged metrics of every point. A measure is named as the metric is, with ``-`` for ``_``."""
    figures = {
        printable(point.id): {
            name.replace("_", "-"): {end: value for end, value in zip(_ENDS, values, strict=True) if value is not None}
            for name, figure in tracked(view.results, point).items()
            for values in [(figure.value, figure.low, figure.high)]
        }
        for point in view.results.points
        if point.metrics
    }
    return json.dumps(figures, indent=2) + "\n"


def export(view: RunView, out: Path) -> str:
    """Write both files below ``out``. Raises ``UsageError`` where they can't be written."""
    files = {BIGGER: _entries(view.results, more=True), SMALLER: _entries(view.results, more=False)}
    for name, entries in files.items():
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{out / name}: cannot write the export: {fault_text(error)}") from error
    return (
        f"{len(files[BIGGER])} figures in {out / BIGGER} (tool: customBiggerIsBetter), "
        f"{len(files[SMALLER])} in {out / SMALLER} (tool: customSmallerIsBetter)"
    )


def _entries(results: Results, *, more: bool) -> list[dict[str, str | float]]:
    """``range`` is text there: the larger half of the interval."""
    entries: list[dict[str, str | float]] = []
    for point in results.points:
        for name, figure in tracked(results, point).items():
            if name in METRICS and METRICS[name].higher_is_better == more:
                named = {"name": printable(f"{point.id} {name}"), "unit": figure.unit}
                half = spread(figure.value, figure.low, figure.high)
                known = {} if half is None else {"range": f"± {half:.6g}"}
                entries.append({**named, "value": figure.value, **known, "extra": f"run {results.run_id}"})
    return entries
