"""Metrics of sustained load."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, less, more

METRICS: dict[str, MetricTraits] = {
    "burn_flops_per_s": more("FLOP/s", "products over the time they took, on the slowest GPU", "min"),
    "mismatched_elements": less("", "elements of results that differ from the first result, over all GPUs", "sum"),
}
