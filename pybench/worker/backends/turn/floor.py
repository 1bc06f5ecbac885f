"""The least that a handover can take: its copies, at the rates that this GPU reached just before."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pybench.model.workloads.host_device_copy import HostDeviceCopy
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth
from pybench.model.workloads.turn import Turn
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.node.host_device_copy import HostDeviceCopyBench
from pybench.worker.backends.torch.node.memory_bandwidth import MemoryBandwidthBench

# Much larger than a cache, and small compared with the memory of trainer and engine.
_GPU_BYTES, _CPU_BYTES = 2**28, 2**24
_REPEATS = 5


@dataclass(frozen=True)
class Floor:
    """Rates of one GPU in bytes per second, by the same workloads that check a node, and what a handover moves.

    A GPU copies its share of the weights once within its memory (read and written), or by a file from the first GPU to
    the host and from the host to every GPU. Links between GPUs are left out: they add to a real handover, not to this.
    """

    num_gpus: int
    through_host: bool
    memory_bytes_per_s: float
    to_host_bytes_per_s: float
    from_host_bytes_per_s: float

    @classmethod
    def measured(cls, settings: Turn, device: torch.device) -> Floor:
        """Measure the rates on this rank's GPU. Its memory for it is free again afterwards."""
        alone = TorchRanks(0, 1, device)
        size = _GPU_BYTES if device.type == "cuda" else _CPU_BYTES
        memory = MemoryBandwidth(backend="torch", array_bytes=size, passes=_REPEATS)
        to_host = HostDeviceCopy(backend="torch", direction="d2h", copy_bytes=size, copies=_REPEATS)
        from_host = HostDeviceCopy(backend="torch", direction="h2d", copy_bytes=size, copies=_REPEATS)
        rates = (
            _second(MemoryBandwidthBench(memory, alone))["memory_bytes_per_s"],
            _second(HostDeviceCopyBench(to_host, alone))["host_copy_bytes_per_s"],
            _second(HostDeviceCopyBench(from_host, alone))["host_copy_bytes_per_s"],
        )
        if device.type == "cuda":
            torch.cuda.empty_cache()
        return cls(settings.tensor_parallel, settings.handover == "file", *rates)

    def there_and_back(self, num_bytes: float) -> float:
        """Seconds of so many bytes to the host and from it again."""
        return num_bytes / self.to_host_bytes_per_s + num_bytes / self.from_host_bytes_per_s

    def seconds(self, num_bytes: float) -> float:
        """The least time of a handover of ``num_bytes``, in seconds."""
        share = num_bytes / self.num_gpus
        if self.through_host:
            return num_bytes / self.to_host_bytes_per_s + share / self.from_host_bytes_per_s
        return 2 * share / self.memory_bytes_per_s


def _second(bench: MemoryBandwidthBench | HostDeviceCopyBench) -> dict[str, float]:
    """The first passes warm up."""
    bench.measure()
    return bench.measure()
