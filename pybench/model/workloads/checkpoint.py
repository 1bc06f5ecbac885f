"""Saving a trainer's state and loading it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.workloads.settings import LoraTargets, ModelSettings, Range
from pybench.model.workloads.train import Train
from pybench.model.workloads.traits import Need, WorkloadTraits, less, throughput, unmet_needs

SAVE, LOAD, CHECK = "save", "load", "check"
PHASES = (SAVE, LOAD, CHECK)
"""Parts of a step. Between the first two the trainer's state is overwritten, so that loading must restore it."""
_SEQUENCE_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class Checkpoint(ModelSettings):
    """Checkpoints of a trainer after one training step: a step saves its state, loads it and compares every bit."""

    workload: Literal["checkpoint"] = "checkpoint"
    strategy: Annotated[Literal["ddp", "fsdp"], "what each rank has of the trainer's state: all, or a part"] = "ddp"
    file_format: Annotated[
        Literal["sharded", "torch_save", "safetensors"],
        "sharded: every rank writes its part (torch.distributed.checkpoint); else rank 0 gathers and writes one file",
    ] = "sharded"
    contents: Annotated[Literal["trainer", "weights", "adapters"], "adapters: needs lora_rank"] = "trainer"
    drop_page_cache: Annotated[bool, "the saved files leave the page cache before they are loaded"] = True
    lora_rank: Annotated[int | None, Range(1, 1024), "the trainer has LoRA adapters of this rank"] = None
    lora_targets: Annotated[LoraTargets | None, "projections that get adapters"] = None

    @property
    def longest_sequence_tokens(self) -> int:
        """Tokens of the one training step."""
        return _SEQUENCE_TOKENS

    @property
    def training(self) -> Train:
        """The trainer: one step of it makes the optimizer's states."""
        return self.part(Train, batch_size_per_gpu=1, sequence_tokens=_SEQUENCE_TOKENS, activation_checkpointing="full")


_NEEDS = (
    Need("contents", "lora_rank", why="'adapters' needs lora_rank: set it, or take 'weights'", when=("adapters",)),
    Need("lora_targets", "lora_rank"),
)
_METRICS = {
    "save_bytes_per_s": throughput("bytes/s", "checkpoint_bytes over save_s"),
    "load_bytes_per_s": throughput("bytes/s", "checkpoint_bytes over load_s"),
    "save_s": less("s", "until every file of a checkpoint is written and flushed to its device (fsync)"),
    "load_s": less("s", "until every rank has its state back"),
    "checkpoint_bytes": less("bytes", "size of a checkpoint's files", "max", is_count=True),
    "page_cache_fraction": less("", "share of the files in the page cache as loading begins: 0 is a cold load", "max"),
}
WORKLOAD = WorkloadTraits(
    settings=Checkpoint, metrics=_METRICS, phases=PHASES, rules=lambda given: unmet_needs(given, _NEEDS)
)
