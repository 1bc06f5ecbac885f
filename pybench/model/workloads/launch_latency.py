"""The cost of giving a device work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.workloads.traits import NodeSettings, Repeats, WorkloadTraits, less


@dataclass(frozen=True, kw_only=True)
class LaunchLatency(NodeSettings):
    """Operations too small to matter: what remains is the launch, and the way there and back."""

    workload: Literal["launch_latency"] = "launch_latency"
    launches: Annotated[int, Repeats, "launches in a step"] = 1000


_METRICS = {
    "launch_s": less("s", "host time of one launch while the device keeps up, on the slowest rank", "max"),
    "round_trip_s": less("s", "one launch and the wait for its end, on the slowest rank", "max"),
}
WORKLOAD = WorkloadTraits(
    settings=LaunchLatency,
    metrics=_METRICS,
    headline="launch_s",
)
