"""Metrics of launches."""

from __future__ import annotations

from pybench.model.metrics.traits import MetricTraits, less

METRICS: dict[str, MetricTraits] = {
    "launch_s": less("s", "host time of one launch while the device keeps up, on the slowest rank", "max"),
    "round_trip_s": less("s", "one launch and the wait for its end, on the slowest rank", "max"),
}
