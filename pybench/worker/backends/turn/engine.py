"""The interface of a turn's engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import torch

from pybench.worker.backends.turn.delivery import Named


class InferenceEngine(Protocol):
    """An engine that can fall asleep and take new weights. Every call returns once the engine is done."""

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
        """Fill all weights with NaN, so that one which is not handed over can't pass for right."""

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

    @property
    def num_shards(self) -> int:
        """GPUs whose part of the weights this process compares."""

    def part(self, shard: int, name: str, whole: torch.Tensor) -> torch.Tensor:
        """The part of a weight that ``shard`` must hold."""

    def digests(self) -> list[dict[str, int]]:
        """The digests of each shard's weights, by their names in transformers."""

    def host_bytes(self) -> int:
        """Pinned host memory of the engine's own processes; on a CPU its weights' copies."""

    def close(self) -> None:
        """End what the engine started."""
