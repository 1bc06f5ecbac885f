"""Copies between GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pybench.model.workloads.traits import Bytes, NodeSettings, Repeats, WorkloadTraits, more


@dataclass(frozen=True, kw_only=True)
class PeerCopy(NodeSettings):
    """Copies from every GPU to every other one, one ordered pair at a time: a matrix of links."""

    least_gpus: ClassVar[int] = 2

    workload: Literal["peer_copy"] = "peer_copy"
    peer_bytes: Annotated[int, Bytes, "size of a copy"] = 2**28
    peer_copies: Annotated[int, Repeats, "copies over each link in a step"] = 10


_METRICS = {
    "peer_copy_bytes_per_s": more("bytes/s", "bytes copied over the time, one way, over the slowest link", "min"),
}
WORKLOAD = WorkloadTraits(
    settings=PeerCopy,
    metrics=_METRICS,
    headline="peer_copy_bytes_per_s",
    rank_values={"link_to_{rank}_bytes_per_s": "bytes/s"},
)
