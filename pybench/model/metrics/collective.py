"""Metrics of collective operations, as nccl-tests defines them (its doc/PERFORMANCE.md)."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, less, more

METRICS: dict[str, MetricTraits] = {
    "busbw_bytes_per_s": more(
        "bytes/s", "bus bandwidth: algbw times the share of the data that every rank must send", "min"
    ),
    "algbw_bytes_per_s": more("bytes/s", "message size over the time of one operation, on the slowest rank", "min"),
    "collective_s": less("s", "time of one operation, on the slowest rank", "max"),
}
