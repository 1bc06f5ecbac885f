"""The samples of a training step: resident on the device, or brought by a loader.

Every step trains on the same samples, so that learning shows in the loss at once, and so do ranks that diverge. The
joint batch is the same for every number of ranks and passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import cycle
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.samples import IGNORED, sample_tokens
from pybench.worker.backends.torch.train.learner import Batch, Portion, Task


class Source(Protocol):
    """This rank's part of every step's samples. ``num_labels`` counts a step's predicted tokens over all ranks."""

    num_labels: int

    def passes(self) -> Iterator[Batch]:
        """The batches of one step, on the rank's device."""

    def values(self) -> dict[str, float]:
        """The last step's measurements of its input."""


@contextmanager
def source(task: Task, portion: Portion) -> Iterator[Source]:
    """The samples of a point."""
    settings, vocab_size = task.settings, task.architecture["vocab_size"]
    if settings.loader_workers is None:
        yield Resident(task, portion, vocab_size)
        return
    with closing(Loaded(task, portion, Samples(settings, vocab_size))) as loaded:
        yield loaded


class Resident:
    """Samples on the device from the start, without an input pipeline."""

    def __init__(self, task: Task, portion: Portion, vocab_size: int) -> None:
        settings = task.settings
        self.num_labels = settings.effective_batch_size * (settings.sequence_tokens - 1)
        size, length = settings.micro_batch_size, settings.sequence_tokens
        first = portion.replica * size * settings.num_passes
        parts = Parts(task, portion)
        starts = range(first, first + settings.num_passes * size, size)
        self._batches = [
            parts.batch(*with_labels(sample_tokens(start, size, length, vocab_size, settings.seed))) for start in starts
        ]

    def passes(self) -> Iterator[Batch]:
        """The same tensors in every step."""
        return iter(self._batches)

    def values(self) -> dict[str, float]:
        """Nothing: a step waits for no input."""
        return {}


class Loaded:
    """Batches of torch's DataLoader."""

    def __init__(self, task: Task, portion: Portion, dataset: Dataset[torch.Tensor]) -> None:
        settings = task.settings
        self.num_labels = settings.effective_batch_size * (settings.sequence_tokens - 1)
        self._num_passes = settings.num_passes
        self._parts = Parts(task, portion, non_blocking=bool(settings.pin_memory))
        self._wait_s = 0.0
        workers, size = settings.loader_workers or 0, settings.micro_batch_size
        first = portion.replica * size * settings.num_passes
        # The numbers of this rank's sequences, pass by pass; endless, so that workers read ahead into the next step.
        starts = cycle(range(first, first + size * settings.num_passes, size))
        places: Any = (list(range(start, start + size)) for start in starts)
        loader = DataLoader(
            dataset,
            batch_sampler=places,
            num_workers=workers,
            collate_fn=lambda sequences: with_labels(torch.stack(list(sequences))),
            pin_memory=bool(settings.pin_memory),
            # A worker of another kind would import this process's main module anew.
            multiprocessing_context="fork" if workers else None,
        )
        self._batches: Iterator[Any] = iter(loader)

    def passes(self) -> Iterator[Batch]:
        """The next batches. The wait for a batch ends when its copy to the device is issued."""
        self._wait_s = 0.0
        for _ in range(self._num_passes):
            start_ns = time.monotonic_ns()
            batch = self._parts.batch(*next(self._batches))
            self._wait_s += (time.monotonic_ns() - start_ns) / 1e9
            yield batch

    def values(self) -> dict[str, float]:
        """Seconds that the last step waited."""
        return {"input_wait_s": self._wait_s}

    def close(self) -> None:
        """End the loader's workers."""
        self._batches = iter(())


class Samples(Dataset[torch.Tensor]):
    """Sequence ``index`` as a tensor of shape (tokens,), drawn from its number alone."""

    def __init__(self, settings: Train, vocab_size: int) -> None:
        self._length, self._vocab_size, self._seed = settings.sequence_tokens, vocab_size, settings.seed

    def __getitem__(self, index: int) -> torch.Tensor:
        return sample_tokens(index, 1, self._length, self._vocab_size, self._seed)[0]


class Parts:
    """Cuts whole sequences to this rank's chunk of them, and copies it to the device."""

    def __init__(self, task: Task, portion: Portion, *, non_blocking: bool = False) -> None:
        self._portion = portion
        self._device = task.ranks.device
        self._non_blocking = non_blocking
        self._positions = self._chunk(torch.arange(task.settings.sequence_tokens)[None])

    def batch(self, tokens: torch.Tensor, labels: torch.Tensor) -> Batch:
        """A batch of tokens and labels of shape (samples, tokens)."""
        return Batch(self._chunk(tokens), self._chunk(labels), self._positions)

    def _chunk(self, whole: torch.Tensor) -> torch.Tensor:
        part = whole.chunk(self._portion.num_chunks, dim=1)[self._portion.chunk]
        return part.to(self._device, non_blocking=self._non_blocking)


def with_labels(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens and their labels: for each token the next one, for the last one none."""
    return tokens, torch.nn.functional.pad(tokens[:, 1:], (0, 1), value=IGNORED)
