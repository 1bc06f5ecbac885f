"""The samples of a training step: resident on the device, or brought by a loader.

Every step trains on the same samples, so that learning shows in the loss at once, and so do ranks that diverge. The
joint batch is the same for every number of ranks and passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import cycle, starmap
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.samples import IGNORED, sample_tokens
from pybench.worker.backends.torch.train.learner import Batch, Portion, Task


class Source:
    """This rank's part of every step's samples: resident on the device, or batches of torch's DataLoader.

    ``num_labels`` counts a step's predicted tokens over all ranks.
    """

    def __init__(self, task: Task, portion: Portion, dataset: Dataset[torch.Tensor] | None = None) -> None:
        settings, workers = task.settings, task.settings.loader_workers
        data: Any = Samples(settings, task.architecture["vocab_size"]) if dataset is None else dataset
        self.num_labels = settings.effective_batch_size * (settings.sequence_tokens - 1)
        self._num_passes, self._loads, self._wait_s = settings.num_passes, workers is not None, 0.0
        pins = self._loads and bool(settings.pin_memory)
        parts = Parts(task, portion, non_blocking=pins)
        places = [list(range(place.start, place.stop)) for place in passes_of(settings, portion)]
        self._batches: Iterator[Batch]
        if workers is None:
            self._batches = cycle([parts.batch(*_stacked([data[number] for number in place])) for place in places])
            return
        endless: Any = cycle(places)  # workers read ahead into the next step
        loader = DataLoader(
            data,
            batch_sampler=endless,
            num_workers=workers,
            collate_fn=_stacked,
            pin_memory=pins,
            # A worker of another kind would import this process's main module anew.
            multiprocessing_context="fork" if workers else None,
        )
        self._batches = starmap(parts.batch, loader)

    def passes(self) -> Iterator[Batch]:
        """The next batches. The wait for a batch ends when its copy to the device is issued."""
        self._wait_s = 0.0
        for _ in range(self._num_passes):
            start_ns = time.monotonic_ns()
            batch = next(self._batches)
            self._wait_s += (time.monotonic_ns() - start_ns) / 1e9
            yield batch

    def values(self) -> dict[str, float]:
        """Seconds that the last step waited for a loader."""
        return {"input_wait_s": self._wait_s} if self._loads else {}

    def close(self) -> None:
        """End the loader's workers."""
        self._batches = iter(())


def passes_of(settings: Train, portion: Portion) -> list[slice]:
    """This rank's place among a step's sequences, pass by pass."""
    size = settings.micro_batch_size
    first = portion.replica * settings.num_passes
    return [slice(number * size, (number + 1) * size) for number in range(first, first + settings.num_passes)]


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


def _stacked(sequences: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return with_labels(torch.stack(list(sequences)))
