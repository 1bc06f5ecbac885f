"""Sustained load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.workloads.rules import Range
from pybench.model.workloads.traits import SLOWER_PRODUCTS_FRACTION, NodeSettings, WorkloadTraits, less, more


@dataclass(frozen=True, kw_only=True)
class Burn(NodeSettings):
    """Products of the same matrices for a given time on every GPU at once, each result held against the first.

    Operands are equal on all GPUs and in all attempts, so results must be, too, bit for bit.
    """

    workload: Literal["burn"] = "burn"
    burn_precision: Annotated[Literal["bfloat16", "float16", "float32"], "type of the operands"] = "bfloat16"
    side: Annotated[int, Range(16, 2**17), "rows and columns of both operands"] = 8192
    burn_s: Annotated[float, Range(0.01, 86_400), "length of one step, in s"] = 10.0


_METRICS = {
    "burn_flops_per_s": more(
        "FLOP/s", "products over the time of them and their comparison, on the slowest GPU", "min"
    ),
    "mismatched_elements": less("", "elements of results that differ from the first result, over all GPUs", "sum"),
}
WORKLOAD = WorkloadTraits(
    settings=Burn,
    metrics=_METRICS,
    headline="burn_flops_per_s",
    rank_values={"checksum": ""},
    slower_fraction=SLOWER_PRODUCTS_FRACTION,
    loads_gpu=True,
)
