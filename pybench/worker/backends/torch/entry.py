"""The torch backend: join the ranks, prepare a workload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pybench.model.settings import Generate
from pybench.model.wire import WorkOrder
from pybench.worker.backend import Workload
from pybench.worker.backends.torch.generate import generation
from pybench.worker.backends.torch.process_group import TorchRanks, joined
from pybench.worker.backends.torch.train import training
from pybench.worker.header import Device


@contextmanager
def join(order: WorkOrder) -> Iterator[tuple[TorchRanks, Device]]:
    """Take this rank's device and meet the other ranks."""
    with joined(order) as ranks:
        yield ranks, _describe(ranks.device)


@contextmanager
def prepare(order: WorkOrder, ranks: TorchRanks) -> Iterator[Workload]:
    """Build the model of the order's workload."""
    if isinstance(order.settings, Generate):
        with generation(order.settings, order.architecture, ranks) as workload:
            yield workload
    else:
        with training(order.settings, order.architecture, ranks) as trainer:
            yield trainer


def _describe(device: torch.device) -> Device:
    if device.type == "cpu":
        return Device("cpu", torch.backends.cpu.get_cpu_capability())
    properties = torch.cuda.get_device_properties(device)
    uuid = str(properties.uuid)
    return Device("cuda", properties.name, uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
