"""Metrics of generation."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, less, more

METRICS: dict[str, MetricTraits] = {
    "output_tokens_per_s": more("tokens/s", "decoded tokens over the step's length, all GPUs together"),
    "total_tokens_per_s": more("tokens/s", "prompt and decoded tokens over the step's length"),
    "requests_per_s": more("requests/s", "finished sequences over the step's length"),
    "ttft_s": less("s", "time to first token: from the step's start to its first decoded tokens"),
    "tpot_s": less("s", "time per output token after the first"),
    "energy_j_per_output_token": less("J/token", "energy over decoded tokens, all GPUs together"),
}
