"""Bencher Metric Format: ``{benchmark: {measure: {value, lower_value, upper_value}}}``, with the 95 % interval."""

from __future__ import annotations

import json

from pybench.model.results import Estimate
from pybench.report.run.headline import tracked
from pybench.report.run.view import RunView
from pybench.report.table import printable


def render(view: RunView) -> str:
    """Headline and judged metrics of every point. A measure is named as the metric is, with ``-`` for ``_``."""
    found = {
        printable(point.id): {
            name.replace("_", "-"): _metric(estimate) for name, estimate in tracked(view.results, point).items()
        }
        for point in view.results.points
        if point.metrics
    }
    return json.dumps(found, indent=2) + "\n"


def _metric(estimate: Estimate) -> dict[str, float]:
    ends = {"lower_value": estimate.low, "upper_value": estimate.high}
    return {"value": estimate.value, **{name: end for name, end in ends.items() if end is not None}}
