"""Metrics of matrix products."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, more

METRICS: dict[str, MetricTraits] = {
    "matmul_flops_per_s": more("FLOP/s", "2 m n k over the time of one product, on the slowest GPU", "min"),
}
