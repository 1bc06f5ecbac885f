"""The cost of giving a device work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.workloads.node import NodeSettings, Repeats


@dataclass(frozen=True, kw_only=True)
class LaunchLatency(NodeSettings):
    """Operations too small to matter: what remains is the launch, and the way there and back."""

    workload: Literal["launch_latency"] = "launch_latency"
    launches: Annotated[int, Repeats, "launches in a step"] = 1000
