"""Matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.limits import Range
from pybench.model.workloads.metric import more
from pybench.model.workloads.node import SLOWER_PRODUCTS_FRACTION, NodeSettings, Repeats
from pybench.model.workloads.traits import WorkloadTraits

Precision = Literal["bfloat16", "float16", "float8_e4m3fn", "tfloat32", "float32"]
# The longest side makes a bfloat16 matrix of 32 GiB.
Side = Range(1, 2**17)


@dataclass(frozen=True, kw_only=True)
class Matmul(NodeSettings):
    """Products of an m x k by a k x n matrix: one step is ``products`` of them on every GPU at once."""

    workload: Literal["matmul"] = "matmul"
    precision: Annotated[Precision, "type of the operands; tfloat32 is float32 multiplied at TF32's precision"] = (
        "bfloat16"
    )
    m: Annotated[int, Side, "rows of the left operand"] = 8192
    n: Annotated[int, Side, "columns of the right operand"] = 8192
    k: Annotated[int, Side, "columns of the left operand, rows of the right one"] = 8192
    products: Annotated[int, Repeats, "products in a step"] = 50


_METRICS = {
    "matmul_flops_per_s": more("FLOP/s", "2 m n k over the time of one product, on the slowest GPU", "min"),
}
WORKLOAD = WorkloadTraits(
    settings=Matmul,
    metrics=_METRICS,
    headline="matmul_flops_per_s",
    slower_fraction=SLOWER_PRODUCTS_FRACTION,
    loads_gpu=True,
)
