"""Metrics of evaluation."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, less, more

METRICS: dict[str, MetricTraits] = {
    "samples_per_s": more("samples/s", "evaluated samples over the step's length, all GPUs together"),
    "energy_j_per_sample": less("J/sample", "energy over evaluated samples, all GPUs together"),
}
