"""Workloads that measure a node and run no model: a class of settings and an entry of :data:`WORKLOADS` each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from pybench.model.workloads.settings import Bytes, Nodes, NodeSettings, Range, Repeats
from pybench.model.workloads.traits import Breach, GivenSettings, Need, WorkloadTraits, less, more, unmet_needs

# Healthy GPUs differ in products by 5 % and more on a node of eight (stas00 ml-engineering, "Not all accelerators are
# created equal") and by 8 % on average over whole clusters (arXiv:2208.11035).
_SLOWER_PRODUCTS_FRACTION = 0.10

Precision = Literal["bfloat16", "float16", "float8_e4m3fn", "tfloat32", "float32"]
# The longest side makes a bfloat16 matrix of 32 GiB.
Side = Range(1, 2**17)
# cuBLASLt's FP8 product takes sides that are multiples of it.
_FP8_MULTIPLE = 16


@dataclass(frozen=True, kw_only=True)
class Matmul(NodeSettings):
    """Products of an m x k by a k x n matrix: one step is ``products`` of them on every GPU at once."""

    workload: Literal["matmul"] = "matmul"
    precision: Annotated[Precision, "type of the operands; tfloat32: float32 at TF32's precision"] = "bfloat16"
    m: Annotated[int, Side, "rows of the left operand"] = 8192
    n: Annotated[int, Side, "columns of the right operand"] = 8192
    k: Annotated[int, Side, "columns of the left operand, rows of the right one"] = 8192
    products: Annotated[int, Repeats, "products in a step"] = 50


def _fp8_sides(given: GivenSettings) -> Iterator[Breach]:
    if "float8_e4m3fn" not in given.values("precision"):
        return
    for name in ("m", "n", "k"):
        uneven = [value for value in given.values(name) if isinstance(value, int) and value % _FP8_MULTIPLE]
        if uneven:
            below = uneven[0] // _FP8_MULTIPLE * _FP8_MULTIPLE
            near = " or ".join(f"{side}" for side in (below, below + _FP8_MULTIPLE) if side)
            why = f"float8_e4m3fn multiplies sides that are multiples of {_FP8_MULTIPLE}, found {uneven[0]}"
            yield Breach(f"{why}: take {near}, or another precision", name)


@dataclass(frozen=True, kw_only=True)
class MemoryBandwidth(NodeSettings):
    """Streams over arrays far larger than any cache, on every GPU at once, as STREAM and BabelStream count them."""

    workload: Literal["memory_bandwidth"] = "memory_bandwidth"
    pattern: Annotated[Literal["copy", "triad"], "copy: c = a; triad: a = b + scalar * c"] = "copy"
    fill: Annotated[Literal["random", "constant"], "content of the arrays; one value takes fewer watts"] = "random"
    array_bytes: Annotated[int, Bytes, "size of each array"] = 2**30
    passes: Annotated[int, Repeats, "passes over the arrays in a step"] = 20


@dataclass(frozen=True, kw_only=True)
class HostDeviceCopy(NodeSettings):
    """Copies between pinned host memory and the device, by every GPU alone in turn or by all at once."""

    workload: Literal["host_device_copy"] = "host_device_copy"
    direction: Annotated[Literal["h2d", "d2h", "both"], "to the device, from it, or both at the same time"] = "h2d"
    at_once: Annotated[bool, "true: all GPUs copy at the same time; false: one after the other"] = False
    copy_bytes: Annotated[int, Bytes, "size of a copy in each direction"] = 2**28
    copies: Annotated[int, Repeats, "copies in a step"] = 10


@dataclass(frozen=True, kw_only=True)
class PeerCopy(NodeSettings):
    """Copies from every GPU to every other one, one ordered pair at a time: a matrix of links."""

    least_gpus: ClassVar[int] = 2

    workload: Literal["peer_copy"] = "peer_copy"
    peer_bytes: Annotated[int, Bytes, "size of a copy"] = 2**28
    peer_copies: Annotated[int, Repeats, "copies over each link in a step"] = 10


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
    groups: Annotated[Literal["all", "rails"], "all ranks together, or GPU i of every node, all i at once"] = "all"
    element: Annotated[Literal["float16", "bfloat16", "float32"], "type of the elements"] = "float16"
    message_bytes: Annotated[int, Bytes, "message size, rounded up to whole elements on every rank"] = 2**29
    operations: Annotated[int, Repeats, "operations in a step"] = 20


_SEVERAL, _RAILS = range(2, 1025), ("rails",)
_JOINS = "'bisection' already joins GPUs with the same place on their nodes: remove groups"
_NEEDS = (
    Need("groups", "nodes", _SEVERAL, "'rails' join GPUs of several nodes: needs nodes of 2 or more", _RAILS),
    Need("groups", "operation", {None, *get_args(Operation)} - {"bisection"}, _JOINS, _RAILS),
)


@dataclass(frozen=True, kw_only=True)
class LaunchLatency(NodeSettings):
    """Operations too small to matter: what remains is the launch, and the way there and back."""

    workload: Literal["launch_latency"] = "launch_latency"
    launches: Annotated[int, Repeats, "launches in a step"] = 1000


@dataclass(frozen=True, kw_only=True)
class Burn(NodeSettings):
    """Products of the same matrices for a given time on every GPU at once; each equals the first, bit for bit."""

    workload: Literal["burn"] = "burn"
    burn_precision: Annotated[Literal["bfloat16", "float16", "float32"], "type of the operands"] = "bfloat16"
    side: Annotated[int, Range(16, 2**17), "rows and columns of both operands"] = 8192
    burn_s: Annotated[float, Range(0.01, 86_400), "length of one step, in s"] = 10.0


@dataclass(frozen=True, kw_only=True)
class TrainingStep(NodeSettings):
    """The same updates of a small transformer on every GPU at once; updated weights are equal, bit for bit."""

    workload: Literal["training_step"] = "training_step"
    step_precision: Annotated[Literal["bfloat16", "float32"], "type of products; weights are float32"] = "bfloat16"
    layers: Annotated[int, Range(1, 256), "layers of attention and MLP"] = 2
    heads: Annotated[int, Range(1, 512), "heads of 128 columns each: the width of a layer"] = 32
    sequences: Annotated[int, Range(1, 2**16), "sequences of a batch"] = 4
    tokens: Annotated[int, Range(1, 2**17), "tokens of a sequence"] = 1024
    updates: Annotated[int, Range(1, 10_000), "updates in a step, from the same initial weights"] = 8


_REPEATED = less("", "elements of results that differ from the first result, over all GPUs", "sum")
WORKLOADS = (
    WorkloadTraits(
        settings=Matmul,
        metrics={
            "matmul_flops_per_s": more("FLOP/s", "2 m n k over the time of one product, on the slowest GPU", "min")
        },
        slower_fraction=_SLOWER_PRODUCTS_FRACTION,
        loads_gpu=True,
        rules=_fp8_sides,
    ),
    WorkloadTraits(
        settings=MemoryBandwidth,
        metrics={
            "memory_bytes_per_s": more("bytes/s", "bytes read and written over the time, on the slowest GPU", "min")
        },
        # Memory-bound work differs by under 1 % between healthy GPUs (arXiv:2208.11035).
        slower_fraction=0.05,
    ),
    WorkloadTraits(
        settings=HostDeviceCopy,
        metrics={
            "host_copy_bytes_per_s": more("bytes/s", "bytes copied over time, both ways, on the slowest GPU", "min")
        },
        # Sockets, switches and NUMA nodes lie between a GPU and the host's memory.
        slower_fraction=0.20,
    ),
    WorkloadTraits(
        settings=PeerCopy,
        metrics={
            "peer_copy_bytes_per_s": more("bytes/s", "bytes copied over the time, one way, on the slowest link", "min")
        },
        rank_values={"link_to_{rank}_bytes_per_s": "bytes/s"},
    ),
    WorkloadTraits(
        settings=Collective,
        metrics={
            "busbw_bytes_per_s": more("bytes/s", "bus bandwidth: algbw times the share that a rank must send", "min"),
            "algbw_bytes_per_s": more("bytes/s", "message size over an operation's time, on the slowest rank", "min"),
            "collective_s": less("s", "time of one operation, on the slowest rank", "max"),
        },
        rank_values={"nvls": ""},
        rules=lambda given: unmet_needs(given, _NEEDS),
    ),
    WorkloadTraits(
        settings=LaunchLatency,
        metrics={
            "launch_s": less("s", "host time of one launch while the device keeps up, on the slowest rank", "max"),
            "round_trip_s": less("s", "one launch and the wait for its end, on the slowest rank", "max"),
        },
    ),
    WorkloadTraits(
        settings=Burn,
        metrics={
            "burn_flops_per_s": more("FLOP/s", "products over the time with comparison, on the slowest GPU", "min"),
            "mismatched_elements": _REPEATED,
        },
        rank_values={"checksum": ""},
        slower_fraction=_SLOWER_PRODUCTS_FRACTION,
        loads_gpu=True,
    ),
    WorkloadTraits(
        settings=TrainingStep,
        metrics={
            "training_step_tokens_per_s": more("tokens/s", "tokens over the updates' time, on the slowest GPU", "min"),
            "mismatched_elements": _REPEATED,
        },
        rank_values={"checksum": ""},
        slower_fraction=_SLOWER_PRODUCTS_FRACTION,
    ),
)
