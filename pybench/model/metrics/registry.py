"""Every metric that a point can show, by workload and by name."""

from __future__ import annotations

from pybench.model.metrics import evaluate, every, generate, train
from pybench.model.metrics.traits import MetricTraits
from pybench.model.workloads.settings import WorkloadName

METRICS_OF: dict[WorkloadName, dict[str, MetricTraits]] = {
    "generate": {**generate.METRICS, **every.METRICS},
    "train": {**train.METRICS, **every.METRICS},
    "evaluate": {**evaluate.METRICS, **every.METRICS},
}
METRICS: dict[str, MetricTraits] = {name: traits for own in METRICS_OF.values() for name, traits in own.items()}
