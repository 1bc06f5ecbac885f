"""Training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.limits import Range
from pybench.model.workloads.settings import BatchSize, ModelSettings, Tokens


@dataclass(frozen=True, kw_only=True)
class Train(ModelSettings):
    """Training: one step is forward, backward and optimizer update. Exactly one of the two batch sizes is given."""

    workload: Literal["train"] = "train"
    strategy: Annotated[Literal["ddp"], "how ranks share the work"] = "ddp"
    global_batch_size: Annotated[int | None, BatchSize, "samples in a step over all GPUs: strong scaling"] = None
    batch_size_per_gpu: Annotated[int | None, BatchSize, "samples in a step on each GPU: weak scaling"] = None
    sequence_tokens: Annotated[int, Tokens, "sample length, in tokens"]
    learning_rate: Annotated[float, Range(0, 1), "AdamW's learning rate"] = 1e-4

    @property
    def local_batch_size(self) -> int:
        """Samples in a step on each data-parallel rank."""
        if self.batch_size_per_gpu is not None:
            return self.batch_size_per_gpu
        assert self.global_batch_size is not None
        return self.global_batch_size // self.data_parallel

    @property
    def longest_sequence_tokens(self) -> int:
        """One sample."""
        return self.sequence_tokens

    @property
    def shared_samples(self) -> int | None:
        """The global batch, for strong scaling."""
        return self.global_batch_size
