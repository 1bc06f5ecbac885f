"""A device's own memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.workloads.traits import Bytes, NodeSettings, Repeats, WorkloadTraits, more


@dataclass(frozen=True, kw_only=True)
class MemoryBandwidth(NodeSettings):
    """Streams over arrays far larger than any cache, on every GPU at once, as STREAM and BabelStream count them."""

    workload: Literal["memory_bandwidth"] = "memory_bandwidth"
    pattern: Annotated[Literal["copy", "triad"], "copy: c = a; triad: a = b + scalar * c"] = "copy"
    fill: Annotated[
        Literal["random", "constant"], "what the arrays hold: random values, or one value, which takes fewer watts"
    ] = "random"
    array_bytes: Annotated[int, Bytes, "size of each array"] = 2**30
    passes: Annotated[int, Repeats, "passes over the arrays in a step"] = 20


_METRICS = {
    "memory_bytes_per_s": more("bytes/s", "bytes read and written over the time, on the slowest GPU", "min"),
}
WORKLOAD = WorkloadTraits(
    settings=MemoryBandwidth,
    metrics=_METRICS,
    headline="memory_bytes_per_s",
    # Memory-bound work differs by under 1 % between healthy GPUs (arXiv:2208.11035).
    slower_fraction=0.05,
)
