"""Metrics of every workload."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, less

METRICS: dict[str, MetricTraits] = {
    "step_s": less("s", "length of one step"),
    "energy_j": less("J", "energy of one step, all GPUs together"),
    "mean_power_w": less("W", "energy over time while measuring, all GPUs together"),
    "peak_memory_bytes": less("bytes", "most device memory that one rank's backend held", "max"),
    "startup_s": less("s", "from the launch to the first warm-up step"),
}
