"""Evaluation of a model while it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import BatchSize, ModelSettings, Range, Tokens
from pybench.model.workloads.traits import Need, WorkloadTraits, less, shared_work, throughput, unmet_needs


@dataclass(frozen=True, kw_only=True)
class Evaluate(ModelSettings):
    """Evaluation on held-out samples: ``loss`` by one forward pass, ``generation`` by decoding the answer."""

    workload: Literal["evaluate"] = "evaluate"
    method: Annotated[Literal["loss", "generation"], "what a sample is judged by"]
    batch_size: Annotated[int, BatchSize, "samples in a step, over all GPUs"]
    prompt_tokens: Annotated[int, Tokens, "prompt length of every sample, in tokens"]
    output_tokens: Annotated[int, Range(2, 2**20), "answer length of every sample, in tokens"]
    beams: Annotated[int, Range(1, 64), "generation: beams of the search; 1 is greedy"] = 1

    @property
    def longest_sequence_tokens(self) -> int:
        """Prompt and answer."""
        return self.prompt_tokens + self.output_tokens

    @property
    def decoding(self) -> Generate:
        """Generation of the same answers, greedily."""
        return self.part(Generate)


_NEEDS = (
    Need("beams", "method", ("generation",), "belongs to method 'generation'; a loss decodes nothing", range(2, 65)),
)
_METRICS = {
    "samples_per_s": throughput("samples/s", "evaluated samples over the step's length, all GPUs together"),
    "energy_j_per_sample": less("J/sample", "energy over evaluated samples, all GPUs together"),
    "answer_loss": less("nats/token", "generation: how unlikely the model finds the last decoded answers", "mean"),
}
WORKLOAD = WorkloadTraits(
    settings=Evaluate,
    metrics=_METRICS,
    shared_batch="batch_size",
    scaling_rules=shared_work,
    rank_values={"cuda_graph": "", "second_context": ""},
    rules=lambda given: unmet_needs(given, _NEEDS),
)
