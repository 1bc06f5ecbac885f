"""Metrics of generation."""

from __future__ import annotations

from pybench.model.metrics import latency
from pybench.model.metrics.traits import MetricTraits, less, more

METRICS: dict[str, MetricTraits] = {
    "output_tokens_per_s": more("tokens/s", "decoded tokens over the step's length, all GPUs together"),
    "total_tokens_per_s": more("tokens/s", "prompt and decoded tokens over the step's length"),
    "requests_per_s": more("requests/s", "finished sequences over the step's length"),
    **latency.METRICS,
    "energy_j_per_output_token": less("J/token", "energy over decoded tokens, all GPUs together"),
    "output_tokens_per_s_per_w": more("tokens/s/W", "decoded tokens per second and watt, which is per joule"),
    "prefill_energy_j_per_prompt_token": less("J/token", "energy until every sequence has its first token"),
    "decode_energy_j_per_output_token": less("J/token", "energy after every sequence has its first token"),
    "energy_imbalance_fraction": less("", "joules of the thirstiest GPU less those of the least, over their mean"),
    "mfu_fraction": more("", "model FLOPs over what the GPUs' tensor cores can do at the type in use"),
    "mbu_fraction": more("", "bytes that a decode round must read over what the GPUs' memory can deliver meanwhile"),
    "kv_cache_tokens": more("tokens", "tokens that the key-value cache has room for, all copies together", "sum"),
    "num_running": more("", "most sequences that ran at a time, all copies together", "sum"),
    "num_runnable": more("", "sequences that could have run at a time, had their cache had room, in all copies", "sum"),
    "num_preemptions": less("", "times that a running sequence lost its place in the key-value cache", "sum"),
}
