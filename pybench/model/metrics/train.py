"""Metrics of training."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, less, more

METRICS: dict[str, MetricTraits] = {
    "tokens_per_s": more("tokens/s", "trained tokens over the step's length, all GPUs together"),
    "samples_per_s": more("samples/s", "trained samples over the step's length, all GPUs together"),
    "energy_j_per_token": less("J/token", "energy over trained tokens, all GPUs together"),
}
