"""Metrics of training."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, less, more

METRICS: dict[str, MetricTraits] = {
    "tokens_per_s": more("tokens/s", "trained tokens over the step's length, all GPUs together"),
    "samples_per_s": more("samples/s", "trained samples over the step's length, all GPUs together"),
    "flops_per_s_per_gpu": more("FLOP/s", "operations the model needs over the step's length, for each GPU"),
    "mfu_fraction": more("", "model FLOPs utilisation: those operations over what the GPUs' tensor cores can do"),
    "hfu_fraction": more("", "hardware FLOPs utilisation: as MFU, recomputed layers counted too"),
    "step_p50_s": less("s", "median length of an attempt's steps"),
    "step_p90_s": less("s", "length that nine of ten steps stay within"),
    "step_p99_s": less("s", "length that 99 of 100 steps stay within"),
    "energy_j_per_token": less("J/token", "energy over trained tokens, all GPUs together"),
    "exposed_communication_fraction": less(
        "", "part of a step that steps without any communication don't take: see control_steps", "max"
    ),
    "straggler_gap_fraction": less(
        "", "slowest rank over the median of the others, less 1, in steps where no rank waits for another", "max"
    ),
    "batch_size_per_gpu": more("samples", "samples that each data-parallel rank takes at once", "max"),
    "loss": less("nats", "cross-entropy of a step's tokens, the mean over all ranks"),
}
