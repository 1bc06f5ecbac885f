"""The workloads by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args, get_type_hints

from pybench.model.workloads.burn import Burn
from pybench.model.workloads.collective import Collective
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.host_device_copy import HostDeviceCopy
from pybench.model.workloads.launch_latency import LaunchLatency
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth
from pybench.model.workloads.node import NodeSettings
from pybench.model.workloads.peer_copy import PeerCopy
from pybench.model.workloads.settings import Degree, WorkloadName
from pybench.model.workloads.train import Train

NodeWorkload = Matmul | MemoryBandwidth | HostDeviceCopy | PeerCopy | Collective | LaunchLatency | Burn
AnySettings = Generate | Train | Evaluate | NodeWorkload

WORKLOADS: dict[WorkloadName, type[AnySettings]] = {
    "generate": Generate,
    "train": Train,
    "matmul": Matmul,
    "memory_bandwidth": MemoryBandwidth,
    "host_device_copy": HostDeviceCopy,
    "peer_copy": PeerCopy,
    "collective": Collective,
    "launch_latency": LaunchLatency,
    "burn": Burn,
    "evaluate": Evaluate,
}


NODE_WORKLOADS: tuple[WorkloadName, ...] = tuple(
    name for name, settings in WORKLOADS.items() if issubclass(settings, NodeSettings)
)
"""Those that measure a node itself and run no model."""


def setting_names(workload: WorkloadName) -> frozenset[str]:
    """Fields that a suite may set for a workload."""
    return frozenset(field.name for field in fields(WORKLOADS[workload])) - {"workload"}


def count_axes(workload: WorkloadName) -> tuple[str, ...]:
    """Settings that multiply the GPUs of a point: what scaling runs along."""
    hints = get_type_hints(WORKLOADS[workload], include_extras=True)
    return tuple(name for name, hint in hints.items() if Degree in get_args(hint)[1:])


def settings_from_json(values: dict[str, Any]) -> AnySettings:
    """Rebuild what ``Settings.to_json`` wrote. Raises ``KeyError`` or ``TypeError`` on anything else."""
    return WORKLOADS[values["workload"]](**values)
