"""Metrics of copies between host and device."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, more

METRICS: dict[str, MetricTraits] = {
    "host_copy_bytes_per_s": more(
        "bytes/s", "bytes copied over the time, both directions together, by the slowest GPU", "min"
    ),
}
