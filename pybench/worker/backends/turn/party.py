"""The processes that take turns together, and the engine that they have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import torch
from torch import distributed

from pybench.worker.backends.common_torch.process_group import TorchRanks, wait_for
from pybench.worker.backends.turn.delivery import Named
from pybench.worker.gpus import used_bytes


class InferenceEngine(Protocol):
    """An engine that can fall asleep and take new weights. Every call returns once the engine is done.

    ``num_shards`` is the number of GPUs whose part of the weights this process compares.
    """

    num_shards: int

    def generate(self, prompts: torch.Tensor, halfway: Callable[[], None] | None) -> torch.Tensor:
        """Whole sequences for ``prompts``, of shape (sequences, prompt and output tokens), on the CPU.

        ``halfway`` is called once, when about half of the tokens are there.
        """

    def first_token(self, prompt: torch.Tensor) -> None:
        """Produce one token of one sequence."""

    def log_probabilities(self, tokens: torch.Tensor) -> torch.Tensor:
        """Log-probability of each token after the first, given the previous ones; in nats."""

    def sleep(self, level: int) -> None:
        """Fall asleep: 0 stay, 1 weights to the host, 2 weights discarded; the key-value cache goes in both."""

    def wake_weights(self) -> None:
        """Allocate memory for the weights again and restore what was kept."""

    def wake_cache(self) -> None:
        """Take memory for the key-value cache again; the engine can generate from here on."""

    def poison(self) -> None:
        """Fill all weights with NaN, so that a weight that is not handed over can't pass for right."""

    def receive(self, tensors: Iterable[Named]) -> None:
        """Take all weights by their names in transformers, each when its turn comes.

        Where ranks gather them, each makes as many of these calls as the others.
        """

    def read(self, file: Path) -> None:
        """Take the weights of a file."""

    def prefetch(self, file: Path) -> None:
        """Begin to read a file's weights while the engine works on; :meth:`apply` takes them."""

    def apply(self) -> None:
        """Take the weights that were read behind the work, waiting for the rest of them."""

    def part(self, shard: int, name: str, whole: torch.Tensor) -> torch.Tensor:
        """The part of a weight that ``shard`` must hold."""

    def digests(self) -> list[dict[str, int]]:
        """The digests of each shard's weights, by their names in transformers."""

    def host_bytes(self) -> int:
        """Pinned host memory of the engine's own processes; on a CPU its weights' copies."""

    def close(self) -> None:
        """End what the engine started."""


_PAGE_BYTES = 4096


@dataclass
class Party:
    """One rank's view. ``gpu_uuids`` are the GPUs whose memory it watches; ``trains`` is whether it has a trainer.

    Ranks wait for each other in host memory: a rank that waited on its GPU would keep it from working for the others.
    """

    ranks: TorchRanks
    gpu_uuids: tuple[str, ...]
    trains: bool = True

    def __post_init__(self) -> None:
        self.device = self.ranks.device
        self._group = distributed.new_group(backend="gloo") if self.ranks.world_size > 1 else None

    def barrier(self) -> None:
        """Wait for this rank's device, then for all ranks."""
        wait_for(self.device)
        if self._group is not None:
            distributed.barrier(self._group)

    def broadcast(self, message: str | None) -> str:
        """Rank 0's message, on every rank."""
        if self._group is not None:
            listed = [message]
            distributed.broadcast_object_list(listed, src=0, group=self._group)
            message = listed[0]
        return cast("str", message)

    def shared(self, sequences: torch.Tensor | None, shape: tuple[int, int]) -> torch.Tensor:
        """Rank 0's sequences on every rank, on the CPU."""
        if self._group is None:
            assert sequences is not None
            return sequences
        whole = torch.empty(shape, dtype=torch.long) if sequences is None else sequences.contiguous()
        distributed.broadcast(whole, src=0, group=self._group)
        return whole

    def device_bytes(self) -> int | None:
        """Memory in use on the fullest of this rank's GPUs; on a CPU the resident memory of this process."""
        if self.device.type == "cuda":
            return max((used_bytes(uuid) for uuid in self.gpu_uuids), default=None)
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def pinned_bytes() -> int:
    """Pinned host memory of this process, as torch's allocator rounds it; what it keeps for later counts, too."""
    return int(torch.cuda.host_memory_stats().get("allocated_bytes.current", 0))
