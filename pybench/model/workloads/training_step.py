"""A training step whose result must repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.workloads.rules import Range
from pybench.model.workloads.traits import SLOWER_PRODUCTS_FRACTION, NodeSettings, WorkloadTraits, less, more


@dataclass(frozen=True, kw_only=True)
class TrainingStep(NodeSettings):
    """The same updates of a small transformer on every GPU at once, each result compared with the first.

    Weights and tokens are equal on all GPUs and in all attempts, so updated weights must be equal, too, bit for bit.
    """

    workload: Literal["training_step"] = "training_step"
    step_precision: Annotated[Literal["bfloat16", "float32"], "type of products; weights are float32"] = "bfloat16"
    layers: Annotated[int, Range(1, 256), "layers of attention and MLP"] = 2
    heads: Annotated[int, Range(1, 512), "heads of 128 columns each: the width of a layer"] = 32
    sequences: Annotated[int, Range(1, 2**16), "sequences of a batch"] = 4
    tokens: Annotated[int, Range(1, 2**17), "tokens of a sequence"] = 1024
    updates: Annotated[int, Range(1, 10_000), "updates in a step, from the same initial weights"] = 8


_METRICS = {
    "training_step_tokens_per_s": more("tokens/s", "tokens of all updates over their time, on the slowest GPU", "min"),
    "mismatched_elements": less("", "elements of results that differ from the first result, over all GPUs", "sum"),
}
WORKLOAD = WorkloadTraits(
    settings=TrainingStep,
    metrics=_METRICS,
    headline="training_step_tokens_per_s",
    rank_values={"checksum": ""},
    slower_fraction=SLOWER_PRODUCTS_FRACTION,
)
