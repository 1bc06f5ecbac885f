"""Offline batch generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.limits import Range
from pybench.model.workloads.settings import BatchSize, ModelSettings, Tokens


@dataclass(frozen=True, kw_only=True)
class Generate(ModelSettings):
    """Offline batch generation: one step prefills ``batch_size`` prompts and decodes ``output_tokens`` for each."""

    workload: Literal["generate"] = "generate"
    batch_size: Annotated[int, BatchSize, "sequences in a step, over all GPUs"]
    prompt_tokens: Annotated[int, Tokens, "prompt length of every sequence, in tokens"]
    output_tokens: Annotated[int, Range(2, 2**20), "tokens decoded for every sequence"]

    @property
    def longest_sequence_tokens(self) -> int:
        """Prompt and output."""
        return self.prompt_tokens + self.output_tokens

    @property
    def shared_samples(self) -> int | None:
        """Every sequence of the step."""
        return self.batch_size
