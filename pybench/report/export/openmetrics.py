"""A textfile for node_exporter, GitLab and whoever reads OpenMetrics: what both text formats have in common.

All are gauges without a time, since node_exporter skips a file with any; when the run was completed is a gauge, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import get_args

from pybench.model.errors import UsageError
from pybench.model.results import Results
from pybench.model.verdict import Verdict
from pybench.model.workloads.registry import METRICS
from pybench.report.run.view import RunView
from pybench.report.table import printable

_BASE_UNITS = {"_s": "_seconds", "_j": "_joules", "_w": "_watts", "_bytes": "_bytes", "_fraction": "_ratio"}
"""Ends of our names, and the names of base units that Prometheus has for them."""


def render(view: RunView) -> str:
    """Every metric with its interval, the verdict, and the completion time. Raises ``UsageError`` without the last."""
    results = view.results
    completed = results.provenance.finished_utc
    if completed is None:
        raise UsageError(f"{results.run_id}: when it was completed is not recorded, which this format needs; run again")
    try:
        at_s = datetime.fromisoformat(completed).timestamp()
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{results.run_id}: finished_utc {printable(completed)!r} is no time") from error
    lines = [line for name in METRICS for line in _metric(name, results)]
    whole = {"suite": results.suite, "machine": results.machine}
    states = [({**whole, "verdict": word}, float(word == results.verdict)) for word in get_args(Verdict)]
    lines += _family("pybench_verdict", "1 for the verdict that the run has", states)
    described = "When the last attempt ended, in seconds since 1970"
    lines += _family("pybench_completion_timestamp_seconds", described, [(whole, at_s)], unit="seconds")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _metric(name: str, results: Results) -> Iterable[str]:
    points = [point for point in results.points if name in point.metrics]
    if not points:
        return
    family, unit = _family_name(name)
    whole = {"suite": results.suite, "machine": results.machine}
    axes = [{f"axis_{axis}": str(value) for axis, value in point.axes.items()} for point in points]
    labels = [({**whole, "point": p.id, **more}, p.metrics[name]) for p, more in zip(points, axes, strict=True)]
    yield from _family(family, METRICS[name].description, [(tags, figure.value) for tags, figure in labels], unit=unit)
    for end in ("low", "high"):
        values = [(tags, getattr(figure, end)) for tags, figure in labels]
        known = [(tags, value) for tags, value in values if value is not None]
        described = f"{METRICS[name].description}: {'lower' if end == 'low' else 'upper'} end of the 95 % interval"
        if known:
            yield from _family(f"{family}_{end}", described, known)


def _family_name(metric: str) -> tuple[str, str | None]:
    """``pybench_step_seconds`` and its unit; a rate, ``pybench_output_tokens_per_second``, has none."""
    metric = metric.replace("_per_s_", "_per_second_")
    if metric.endswith("_per_s"):
        return f"pybench_{metric.removesuffix('_s')}_second", None
    suffix = next((end for end in _BASE_UNITS if metric.endswith(end)), None)
    if suffix is None:
        return f"pybench_{metric}", None
    unit = _BASE_UNITS[suffix]
    return f"pybench_{metric.removesuffix(suffix)}{unit}", unit.removeprefix("_")


def _family(
    name: str, described: str, samples: Iterable[tuple[Mapping[str, str], float]], unit: str | None = None
) -> list[str]:
    return [
        f"# TYPE {name} gauge",
        *([f"# UNIT {name} {unit}"] if unit else []),
        f"# HELP {name} {_escaped(described)}",
        *(f"{name}{{{_text(labels)}}} {value!r}" for labels, value in samples),
    ]


def _text(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
