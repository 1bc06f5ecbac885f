"""The workloads: one line each. Each module declares its workload."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Union, cast, get_args, get_type_hints

from pybench.model.workloads import checkpoint, evaluate, generate, node, train, turn
from pybench.model.workloads.checkpoint import Checkpoint
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import MODEL_CONFIG, Degree, NodeSettings, WorkloadName
from pybench.model.workloads.train import Train
from pybench.model.workloads.traits import EVERY, MetricTraits, WorkloadTraits
from pybench.model.workloads.turn import Turn

WORKLOADS: tuple[WorkloadTraits, ...] = (
    generate.WORKLOAD,
    train.WORKLOAD,
    *node.WORKLOADS,
    evaluate.WORKLOAD,
    turn.WORKLOAD,
    checkpoint.WORKLOAD,
)

if TYPE_CHECKING:
    AnySettings = Generate | Train | Evaluate | Turn | Checkpoint | NodeSettings
else:
    # Readers of files need every class: a base class would drop the fields of its subclasses.
    AnySettings = Union[tuple(traits.settings for traits in WORKLOADS)]  # noqa: UP007 - as many as there are

TRAITS_OF: dict[WorkloadName, WorkloadTraits] = {traits.name: traits for traits in WORKLOADS}
SETTINGS_OF = {traits.name: cast("type[AnySettings]", traits.settings) for traits in WORKLOADS}
METRICS_OF: dict[WorkloadName, dict[str, MetricTraits]] = {
    traits.name: {**traits.metrics, **EVERY} for traits in WORKLOADS
}
METRICS: dict[str, MetricTraits] = {name: metric for table in METRICS_OF.values() for name, metric in table.items()}

NODE_WORKLOADS = tuple(name for name, settings in SETTINGS_OF.items() if issubclass(settings, NodeSettings))
"""Workloads that measure a node and run no model."""

HEADLINES: tuple[str, ...] = (*(traits.headline for traits in WORKLOADS), "step_s")
"""The first of these that a point has is its headline figure."""

LOADS: tuple[str, ...] = tuple(traits.headline for traits in WORKLOADS if traits.loads_gpu)
"""Headlines of the workloads that keep a GPU busy all the time."""

SHARED_BATCH = {traits.name: traits.shared_batch for traits in WORKLOADS if traits.shared_batch is not None}
"""The setting of the samples that all GPUs share in a step, by workload."""

SLOWER_FRACTIONS = {each.headline: each.slower_fraction for each in WORKLOADS if each.slower_fraction is not None}
"""How far below the others' median a healthy GPU may be, by headline."""


def setting_names(workload: WorkloadName) -> frozenset[str]:
    """Fields that a suite may set for a workload."""
    names = frozenset(field.name for field in fields(SETTINGS_OF[workload])) - {"workload"}
    return names | {MODEL_CONFIG} if "model" in names else names


@cache  # rules and plans of a suite need it thousands of times, and reading annotations is slow
def count_axes(workload: WorkloadName) -> tuple[str, ...]:
    """Settings that multiply the GPUs of a point: what scaling runs along."""
    hints = get_type_hints(SETTINGS_OF[workload], include_extras=True)
    # Other settings may have the same limits.
    return tuple(name for name, hint in hints.items() if any(note is Degree for note in get_args(hint)[1:]))


def settings_from_json(values: dict[str, Any]) -> AnySettings:
    """Rebuild what ``Settings.to_json`` wrote. Raises ``KeyError`` or ``TypeError`` on anything else."""
    return SETTINGS_OF[values["workload"]](**values)
