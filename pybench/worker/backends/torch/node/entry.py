"""The node's workloads, each found by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from pybench.model.workloads.node import NodeSettings
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.measured import Measured


def bench_of(settings: type[NodeSettings], workload: str) -> Callable[[NodeSettings, TorchRanks], Measured]:
    """What measures a workload: class ``MatmulBench`` of the module ``matmul`` for settings of class ``Matmul``."""
    module = importlib.import_module(f"{__package__}.{workload}")
    bench: Callable[[NodeSettings, TorchRanks], Measured] = getattr(module, f"{settings.__name__}Bench")
    return bench


def node_workload(settings: NodeSettings, ranks: TorchRanks) -> AbstractContextManager[Measured]:
    """Fill the memory that the workload of these settings works on."""
    return nullcontext(bench_of(type(settings), settings.workload)(settings, ranks))
