"""Collective operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pybench.model.workloads.rules import Breach, GivenSettings
from pybench.model.workloads.settings import Nodes
from pybench.model.workloads.traits import Bytes, NodeSettings, Repeats, WorkloadTraits, less, more

Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "bisection"]


@dataclass(frozen=True, kw_only=True)
class Collective(NodeSettings):
    """One collective operation over all ranks. ``message_bytes`` is the size S that nccl-tests names and reports.

    For all_gather and reduce_scatter that is the whole array, of which each rank holds its part. In a bisection each
    rank sends it to one rank of the other half, and receives as much from there.
    """

    least_gpus: ClassVar[int] = 2

    workload: Literal["collective"] = "collective"
    nodes: Annotated[int, Nodes, "hosts that the ranks are spread over, as many on each"] = 1
    operation: Annotated[Operation, "collective operation"] = "all_reduce"
    groups: Annotated[
        Literal["all", "rails"],
        "who takes part in one operation: all ranks, or GPU i of each node with GPU i of the others, all rails at once",
    ] = "all"
    element: Annotated[Literal["float16", "bfloat16", "float32"], "type of the elements"] = "float16"
    message_bytes: Annotated[int, Bytes, "message size, rounded up to whole elements on every rank"] = 2**29
    operations: Annotated[int, Repeats, "operations in a step"] = 20


def _rails(given: GivenSettings) -> Iterator[Breach]:
    if "rails" not in given.values("groups"):
        return
    if set(given.values("nodes") or (1,)) & {1}:
        yield Breach("'rails' join GPUs of several nodes: needs nodes of 2 or more", "groups")
    if "bisection" in given.values("operation"):
        yield Breach("'bisection' already joins GPUs with the same place on their nodes: remove groups", "groups")


_METRICS = {
    "busbw_bytes_per_s": more(
        "bytes/s", "bus bandwidth: algbw times the share of the data that every rank must send", "min"
    ),
    "algbw_bytes_per_s": more("bytes/s", "message size over the time of one operation, on the slowest rank", "min"),
    "collective_s": less("s", "time of one operation, on the slowest rank", "max"),
}
WORKLOAD = WorkloadTraits(
    settings=Collective,
    metrics=_METRICS,
    headline="busbw_bytes_per_s",
    rules=_rails,
)
