"""The torch backend: join the ranks, prepare a workload.

What needs transformers or DTensor is imported where it is used: transformers must come after a training strategy's
library that replaces parts of it, and node workloads do without both, which take longer to import than torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from pybench.model.wire import WorkOrder
from pybench.model.workloads.checkpoint import Checkpoint
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import NodeSettings
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import Turn
from pybench.worker.backend import Session, UnsupportedError, Workload
from pybench.worker.backends.common_torch.device import describe, replica_of
from pybench.worker.backends.common_torch.memory import with_own_memory
from pybench.worker.backends.common_torch.process_group import TorchRanks, joined
from pybench.worker.backends.torch.node.entry import node_workload
from pybench.worker.backends.torch.train.package import needs_package
from pybench.worker.header import Device
from pybench.worker.imports import spared_by_collector


@contextmanager
def join(order: WorkOrder) -> Iterator[tuple[TorchRanks, Device]]:
    """Take this rank's device and meet the other ranks."""
    with joined(order) as ranks:
        yield ranks, describe(ranks.device, replica_of(order, ranks.rank))


@contextmanager
def prepare(order: WorkOrder, ranks: TorchRanks) -> Iterator[Session]:
    """Build the model of generation; every other workload builds what it needs itself."""
    settings, architecture = order.settings, order.architecture
    if isinstance(settings, Generate) and architecture is not None:
        with needs_package("backend 'torch'", "torch"), spared_by_collector():
            from pybench.worker.backends.torch.generate import generations
        yield with_own_memory(generations(settings, architecture, ranks), (ranks.device,))
    else:
        yield with_own_memory(partial(_workload, ranks=ranks), (ranks.device,))


def _workload(order: WorkOrder, ranks: TorchRanks) -> AbstractContextManager[Workload]:
    settings, architecture = order.settings, order.architecture
    if isinstance(settings, NodeSettings):
        return node_workload(settings, ranks)
    if isinstance(settings, Train) and architecture is not None:
        with needs_package("backend 'torch'", "torch"), spared_by_collector():
            from pybench.worker.backends.torch.train.training import training
        return training(settings, architecture, ranks)
    if isinstance(settings, Evaluate) and architecture is not None:
        with needs_package("backend 'torch'", "torch"), spared_by_collector():
            from pybench.worker.backends.torch.evaluate import evaluation
        return evaluation(settings, architecture, ranks)
    if isinstance(settings, Turn) and architecture is not None:
        with needs_package("backend 'torch'", "torch"), spared_by_collector():
            from pybench.worker.backends.torch.turn.turns import turns
        return turns(settings, architecture, ranks)
    if isinstance(settings, Checkpoint) and architecture is not None:
        from pybench.worker.backends.torch.checkpoint.checkpoints import checkpoints

        return checkpoints(settings, architecture, ranks)
    raise UnsupportedError(f"{order.point_id}: backend torch has no {settings.workload} workload")
