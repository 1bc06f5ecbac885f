"""Copies between host and device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.workloads.traits import Bytes, NodeSettings, Repeats, WorkloadTraits, more


@dataclass(frozen=True, kw_only=True)
class HostDeviceCopy(NodeSettings):
    """Copies between pinned host memory and the device, by every GPU alone in turn or by all at once."""

    workload: Literal["host_device_copy"] = "host_device_copy"
    direction: Annotated[Literal["h2d", "d2h", "both"], "to the device, from it, or both at the same time"] = "h2d"
    at_once: Annotated[bool, "true: all GPUs copy at the same time; false: one after the other"] = False
    copy_bytes: Annotated[int, Bytes, "size of a copy in each direction"] = 2**28
    copies: Annotated[int, Repeats, "copies in a step"] = 10


_METRICS = {
    "host_copy_bytes_per_s": more(
        "bytes/s", "bytes copied over the time, both directions together, by the slowest GPU", "min"
    ),
}
WORKLOAD = WorkloadTraits(
    settings=HostDeviceCopy,
    metrics=_METRICS,
    headline="host_copy_bytes_per_s",
    # Sockets, switches and NUMA nodes lie between a GPU and the host's memory.
    slower_fraction=0.20,
)
