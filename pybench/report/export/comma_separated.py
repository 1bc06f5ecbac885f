"""CSV with one line for each metric of each point, for spreadsheets, pandas and R."""

from __future__ import annotations

import csv
import io

from pybench.model.text import counted
from pybench.report.run.view import RunView
from pybench.report.table import printable

_FORMULA = ("=", "+", "-", "@")
"""A spreadsheet computes text that begins so. Behind an apostrophe it does not."""


def csv_cell(value: object) -> str:
    """``value`` as text; empty for ``None``."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return repr(value)
    text = printable(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


_RUN = ("run_id", "created_utc", "suite", "profile", "machine", "fingerprint", "gpus", "driver", "software", "verdict")
_OF_POINT = ("point", "benchmark", "status", "num_gpus", "attempts", "flags")
_OF_METRIC = ("metric", "value", "low", "high", "unit")


def render(view: RunView) -> str:
    """A head line, then the values. Unknown cells are empty; an unmeasured point has one line without a value."""
    results = view.results
    axes = tuple(dict.fromkeys(name for point in results.points for name in point.axes))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*_RUN, *_OF_POINT, *(csv_cell(f"axis_{name}") for name in axes), *_OF_METRIC))
    made = results.provenance
    software = " ".join(f"{name}={version}" for name, version in made.packages.items())
    of_machine = (results.machine, results.fingerprint, counted(made.gpu_names), made.driver, software)
    words = (results.run_id, made.created_utc, results.suite, results.profile, *of_machine)
    run = (*map(csv_cell, words), results.verdict)
    for point in results.points:
        of_point = (point.id, point.benchmark, point.status, point.num_gpus, point.attempts, " ".join(point.flags))
        cells = (*run, *map(csv_cell, (*of_point, *(point.axes.get(name) for name in axes))))
        for name, figure in point.metrics.items():
            of_metric = (name, figure.value, figure.low, figure.high, figure.unit)
            writer.writerow((*cells, *map(csv_cell, of_metric)))
        if not point.metrics:
            writer.writerow((*cells, *("" for _ in _OF_METRIC)))
    return out.getvalue()
