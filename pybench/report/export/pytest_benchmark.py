"""Step times as pytest-benchmark stores them, for ``pytest-benchmark compare``.

Its times are seconds and less is better, so that only ``step_s`` becomes statistics; every metric is in ``extra_info``.
A round is an attempt: its value is the median of ``iterations`` steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, median, quantiles, stdev
from typing import Any

from pybench.model.errors import UsageError
from pybench.model.results import PointResult, Results
from pybench.report.run.view import RunView
from pybench.report.table import printable

_VERSION = "4.0.0"
"""Version of pytest-benchmark whose layout this is; later ones read it."""
_TIME = "step_s"


def render(view: RunView) -> str:
    """One benchmark for each point with a step time. Raises ``UsageError`` where none has any."""
    results = view.results
    medians_s = {point.id: point.metrics[_TIME].medians for point in results.points if _TIME in point.metrics}
    # Points with medians of their attempts, which no time of 0 is.
    timed = [p for p in results.points if (times := medians_s.get(p.id)) and all(median_s > 0 for median_s in times)]
    if not timed:
        raise UsageError(f"{results.run_id}: no point has attempts with step times, which pytest-benchmark compares")
    # Of an attempt; 1 where the run's folder is not there to look.
    steps = {record.point_id: len(record.ranks[0].steps) for record in view.good_records}
    made = results.provenance
    machine = {
        "node": results.fingerprint,
        "machine": results.machine,
        "release": made.kernel,
        "python_version": made.packages.get("python"),
        "cpu": {"brand_raw": made.cpu_model},
        "gpus": list(made.gpu_names),
        "driver": made.driver,
    }
    whole = {
        "machine_info": machine,
        "commit_info": {"id": "unversioned", "time": None, "author_time": None, "dirty": False, "branch": None},
        "benchmarks": [_benchmark(results, point, steps.get(point.id, 1)) for point in timed],
        "datetime": results.provenance.created_utc,
        "version": _VERSION,
    }
    return json.dumps(whole, indent=2) + "\n"


def _benchmark(results: Results, point: PointResult, iterations: int) -> dict[str, Any]:
    metrics = {
        name: {field: value for field, value in asdict(estimate).items() if field != "medians"}
        for name, estimate in point.metrics.items()
    }
    return {
        "group": point.benchmark,
        "name": printable(point.id),
        "fullname": printable(f"{results.suite}::{point.id}"),
        "params": {name: str(value) for name, value in point.axes.items()} or None,
        "param": ",".join(str(value) for value in point.axes.values()) or None,
        "extra_info": {"run_id": results.run_id, "flags": list(point.flags), "metrics": metrics},
        "options": {"disable_gc": False, "timer": "perf_counter", "min_rounds": point.attempts, "warmup": True},
        "stats": _stats(point.metrics[_TIME].medians, iterations),
    }


def _stats(times_s: Sequence[float], iterations: int) -> dict[str, Any]:
    several = len(times_s) > 1
    first, _, third = quantiles(times_s, n=4, method="inclusive") if several else (times_s[0],) * 3
    spread, mean = stdev(times_s) if several else 0.0, fmean(times_s)
    low, high = first - 1.5 * (third - first), third + 1.5 * (third - first)
    far = sum(not low <= value <= high for value in times_s)
    off = sum(abs(value - mean) > spread for value in times_s)
    return {
        "min": min(times_s),
        "max": max(times_s),
        "mean": mean,
        "stddev": spread,
        "rounds": len(times_s),
        "median": median(times_s),
        "iqr": third - first,
        "q1": first,
        "q3": third,
        "iqr_outliers": far,
        "stddev_outliers": off,
        "outliers": f"{off};{far}",
        "ld15iqr": min(value for value in times_s if value >= low),
        "hd15iqr": max(value for value in times_s if value <= high),
        "ops": 1 / mean,
        "total": sum(times_s),
        "data": list(times_s),
        "iterations": iterations,
    }
