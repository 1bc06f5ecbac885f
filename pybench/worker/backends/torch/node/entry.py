"""The node's workloads by their settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pybench.model.workloads.burn import Burn
from pybench.model.workloads.collective import Collective
from pybench.model.workloads.host_device_copy import HostDeviceCopy
from pybench.model.workloads.launch_latency import LaunchLatency
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth
from pybench.model.workloads.node import NodeSettings
from pybench.model.workloads.peer_copy import PeerCopy
from pybench.worker.backends.torch.node.burn import BurnBench
from pybench.worker.backends.torch.node.collective import CollectiveBench
from pybench.worker.backends.torch.node.host_device_copy import HostDeviceCopyBench
from pybench.worker.backends.torch.node.launch_latency import LaunchLatencyBench
from pybench.worker.backends.torch.node.matmul import MatmulBench
from pybench.worker.backends.torch.node.measured import Measured
from pybench.worker.backends.torch.node.memory_bandwidth import MemoryBandwidthBench
from pybench.worker.backends.torch.node.peer_copy import PeerCopyBench
from pybench.worker.backends.torch.process_group import TorchRanks

_WORKLOADS: dict[type[NodeSettings], Callable[[Any, TorchRanks], Measured]] = {
    Matmul: MatmulBench,
    MemoryBandwidth: MemoryBandwidthBench,
    HostDeviceCopy: HostDeviceCopyBench,
    PeerCopy: PeerCopyBench,
    Collective: CollectiveBench,
    LaunchLatency: LaunchLatencyBench,
    Burn: BurnBench,
}


def node_workload(settings: NodeSettings, ranks: TorchRanks) -> AbstractContextManager[Measured]:
    """Fill the memory that the workload of these settings works on."""
    return nullcontext(_WORKLOADS[type(settings)](settings, ranks))
