"""Where a step's samples come from: they lie on the device, or a loader brings them.

Every step sees the same samples: what the model learns then shows in the loss at once, and ranks that don't learn
together part ways. The joint batch is the same for every number of ranks and passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch

from pybench.model.wire import Metric
from pybench.worker.backends.common_torch.tokens import sample_tokens
from pybench.worker.backends.torch.train.learner import Batch, Portion, Task
from pybench.worker.backends.torch.train.loss import IGNORED


class Source(Protocol):
    """This rank's part of every step's samples.

    ``num_labels`` are the predicted tokens of a whole step, over all ranks.
    """

    num_labels: int

    def passes(self) -> Iterator[Batch]:
        """The batches of one step, on the rank's device."""

    def values(self) -> dict[str, float]:
        """The last step's measurements of its input."""

    def metrics(self) -> tuple[Metric, ...]:
        """Metrics of the samples."""


class Resident:
    """Samples on the device from the start: steps without any input pipeline."""

    def __init__(self, task: Task, portion: Portion, vocab_size: int) -> None:
        settings = task.settings
        self.num_labels = settings.effective_batch_size * (settings.sequence_tokens - 1)
        size = settings.micro_batch_size
        first = portion.replica * size * settings.num_passes
        parts = Parts(task, portion)
        self._batches = [
            parts.batch(
                *with_labels(sample_tokens(first + n * size, size, settings.sequence_tokens, vocab_size, settings.seed))
            )
            for n in range(settings.num_passes)
        ]

    def passes(self) -> Iterator[Batch]:
        """The same tensors in every step."""
        return iter(self._batches)

    def values(self) -> dict[str, float]:
        """Nothing is waited for."""
        return {}

    def metrics(self) -> tuple[Metric, ...]:
        """Nothing is padded."""
        return ()


class Parts:
    """Cuts whole sequences to this rank's chunk of them, and brings it to the device."""

    def __init__(self, task: Task, portion: Portion, *, non_blocking: bool = False) -> None:
        self._portion = portion
        self._device = task.ranks.device
        self._non_blocking = non_blocking
        self._positions = self._chunk(torch.arange(task.settings.sequence_tokens)[None])

    def batch(self, tokens: torch.Tensor, labels: torch.Tensor) -> Batch:
        """Of tokens and labels of shape (samples, tokens)."""
        return Batch(self._chunk(tokens), self._chunk(labels), self._positions)

    def _chunk(self, whole: torch.Tensor) -> torch.Tensor:
        part = whole.chunk(self._portion.num_chunks, dim=1)[self._portion.chunk]
        return part.to(self._device, non_blocking=self._non_blocking)


def with_labels(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens, and behind each the one that follows; none behind the last."""
    return tokens, torch.nn.functional.pad(tokens[:, 1:], (0, 1), value=IGNORED)
