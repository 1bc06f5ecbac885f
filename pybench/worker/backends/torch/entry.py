"""The torch backend: join the ranks, prepare a workload.

Modules that need transformers or DTensor are imported where they are used. A training strategy's library that replaces
parts of transformers must come first, and node workloads start faster without both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, cast

from pybench.model.backend import BACKENDS, MODEL_CLASSES
from pybench.model.wire import WorkOrder
from pybench.model.workloads.settings import NodeSettings, WorkloadName
from pybench.worker.backend import Session, UnsupportedError, Workload
from pybench.worker.backends.common_torch.memory import with_own_memory
from pybench.worker.backends.common_torch.process_group import TorchRanks, joined
from pybench.worker.backends.torch.node.measured import node_workload
from pybench.worker.imports import needs_package, spared_by_collector

_OTHER_NAMES: dict[WorkloadName, tuple[str, str]] = {
    "generate": ("generate", "generations"),
    "train": ("train.training", "training"),
    "evaluate": ("generate", "evaluation"),
    "turn": ("turns", "turns"),
    "checkpoint": ("checkpoints", "checkpoints"),
}
"""Module and function of a workload that runs a model; both have the workload's name where it is not listed."""

join = joined


@contextmanager
def prepare(order: WorkOrder, ranks: TorchRanks) -> Iterator[Session]:
    """Build the model of generation; every other workload builds what it needs itself."""
    if order.settings.workload == "generate" and order.architecture is not None:
        session = _function_of("generate")(order.settings, order.architecture, ranks)
    else:
        session = partial(_workload, ranks=ranks)
    yield with_own_memory(session, (ranks.device,))


def preload(order: WorkOrder) -> None:
    """Import what :func:`prepare` would. Raises ``MissingPackageError``."""
    workload, architecture = order.settings.workload, order.architecture
    if architecture is not None:
        _function_of(workload)
        if name := MODEL_CLASSES.get(architecture["model_type"]):
            getattr(import_module("transformers"), name)


def _workload(order: WorkOrder, ranks: TorchRanks) -> AbstractContextManager[Workload]:
    settings = order.settings
    if isinstance(settings, NodeSettings):
        return node_workload(settings, ranks)
    if settings.workload in BACKENDS["torch"].parallel_axes and order.architecture is not None:
        workload = _function_of(settings.workload)(settings, order.architecture, ranks)
        return cast("AbstractContextManager[Workload]", workload)
    raise UnsupportedError(f"{order.point_id}: backend torch has no {settings.workload} workload")


def _function_of(workload: WorkloadName) -> Any:
    module, function = _OTHER_NAMES.get(workload, (workload, workload))
    with needs_package("backend 'torch'", "torch"), spared_by_collector():
        return getattr(import_module(f"pybench.worker.backends.torch.{module}"), function)
