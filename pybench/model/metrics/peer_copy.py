"""Metrics of copies between GPUs."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, more

METRICS: dict[str, MetricTraits] = {
    "peer_copy_bytes_per_s": more("bytes/s", "bytes copied over the time, one way, over the slowest link", "min"),
}
