"""Every metric that a point can show, by workload and by name."""

from __future__ import annotations

from pybench.model.metrics import (
    burn,
    collective,
    evaluate,
    every,
    generate,
    host_device_copy,
    launch_latency,
    matmul,
    memory_bandwidth,
    peer_copy,
    train,
)
from pybench.model.metrics.traits import MetricTraits
from pybench.model.workloads.settings import WorkloadName

METRICS_OF: dict[WorkloadName, dict[str, MetricTraits]] = {
    "generate": {**generate.METRICS, **every.METRICS},
    "train": {**train.METRICS, **every.METRICS},
    "matmul": {**matmul.METRICS, **every.METRICS},
    "memory_bandwidth": {**memory_bandwidth.METRICS, **every.METRICS},
    "host_device_copy": {**host_device_copy.METRICS, **every.METRICS},
    "peer_copy": {**peer_copy.METRICS, **every.METRICS},
    "collective": {**collective.METRICS, **every.METRICS},
    "launch_latency": {**launch_latency.METRICS, **every.METRICS},
    "burn": {**burn.METRICS, **every.METRICS},
    "evaluate": {**evaluate.METRICS, **every.METRICS},
}
METRICS: dict[str, MetricTraits] = {name: traits for own in METRICS_OF.values() for name, traits in own.items()}
