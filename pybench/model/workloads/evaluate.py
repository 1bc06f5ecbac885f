"""Evaluation of a model while it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.limits import Range
from pybench.model.workloads.metric import less, more
from pybench.model.workloads.settings import BatchSize, ModelSettings, Tokens
from pybench.model.workloads.traits import WorkloadTraits


@dataclass(frozen=True, kw_only=True)
class Evaluate(ModelSettings):
    """Evaluation on held-out samples of a prompt and its answer.

    By ``loss`` one forward pass over prompt and answer; by ``generation`` the answer is decoded token by token.
    """

    workload: Literal["evaluate"] = "evaluate"
    method: Annotated[Literal["loss", "generation"], "what a sample is judged by"]
    batch_size: Annotated[int, BatchSize, "samples in a step, over all GPUs"]
    prompt_tokens: Annotated[int, Tokens, "prompt length of every sample, in tokens"]
    output_tokens: Annotated[int, Range(2, 2**20), "answer length of every sample, in tokens"]

    @property
    def longest_sequence_tokens(self) -> int:
        """Prompt and answer."""
        return self.prompt_tokens + self.output_tokens

    @property
    def shared_samples(self) -> int | None:
        """Every sample of the step."""
        return self.batch_size


_METRICS = {
    "samples_per_s": more("samples/s", "evaluated samples over the step's length, all GPUs together"),
    "energy_j_per_sample": less("J/sample", "energy over evaluated samples, all GPUs together"),
}
WORKLOAD = WorkloadTraits(
    settings=Evaluate,
    metrics=_METRICS,
    headline="samples_per_s",
    rank_values={"cuda_graph": ""},
)
