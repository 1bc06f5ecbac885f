"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.workloads.rules import Breach, GivenSettings, Range
from pybench.model.workloads.traits import SLOWER_PRODUCTS_FRACTION, NodeSettings, Repeats, WorkloadTraits, more

Precision = Literal["bfloat16", "float16", "float8_e4m3fn", "tfloat32", "float32"]
# The longest side makes a bfloat16 matrix of 32 GiB.
Side = Range(1, 2**17)
# cuBLASLt's FP8 product takes sides that are multiples of it.
_FP8_MULTIPLE = 16


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


_METRICS = {
    "matmul_flops_per_s": more("FLOP/s", "2 m n k over the time of one product, on the slowest GPU", "min"),
}
WORKLOAD = WorkloadTraits(
    settings=Matmul,
    metrics=_METRICS,
    headline="matmul_flops_per_s",
    slower_fraction=SLOWER_PRODUCTS_FRACTION,
    loads_gpu=True,
    rules=_fp8_sides,
)
