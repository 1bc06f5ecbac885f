"""This rank's device, as its header names it."""

from __future__ import annotations

import torch

from pybench.model.wire import WorkOrder
from pybench.model.workloads.generate import Generate
from pybench.worker.gpus import nvml_uuid
from pybench.worker.header import Device


def describe(device: torch.device, replica: int) -> Device:
    """Kind, name and UUID of ``device``, which works for replica ``replica``."""
    if device.type == "cpu":
        return Device("cpu", torch.backends.cpu.get_cpu_capability(), replica=replica)
    properties = torch.cuda.get_device_properties(device)
    return Device("cuda", properties.name, nvml_uuid(properties.uuid), replica=replica)


def replica_of(order: WorkOrder, rank: int) -> int:
    """The replica that a rank is part of; ranks of one training report their joint work, as one replica."""
    return rank // order.settings.tensor_parallel if isinstance(order.settings, Generate) else 0
