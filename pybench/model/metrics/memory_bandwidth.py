"""Metrics of a device's own memory."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, more

METRICS: dict[str, MetricTraits] = {
    "memory_bytes_per_s": more("bytes/s", "bytes read and written over the time, on the slowest GPU", "min"),
}
