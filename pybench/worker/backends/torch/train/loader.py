"""Samples from a loader, as a trainer gets them: read from a file of tokens, collated, copied to the device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from pybench.model.wire import Metric
from pybench.worker.backends.torch.train.data import Parts, Resident, Source
from pybench.worker.backends.torch.train.learner import Batch, Portion, Task
from pybench.worker.backends.torch.train.token_file import Collate, Layout, TokenFile, layout, write_tokens
from pybench.worker.ranks import rank_numbers, scratch_folder


@dataclass(frozen=True)
class Endless:
    """The places of one rank's sequences, pass by pass, step after step: workers read ahead over the end of a step."""

    first: int
    size: int
    num_passes: int

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            for number in range(self.num_passes):
                start = self.first + number * self.size
                yield list(range(start, start + self.size))


class Loaded:
    """A loader's batches. ``num_labels`` as of every source."""

    def __init__(self, task: Task, portion: Portion, dataset: Dataset[torch.Tensor], found: Layout) -> None:
        settings = task.settings
        self.num_labels = found.num_labels
        self._padding_fraction = found.padding_fraction
        self._num_passes = settings.num_passes
        self._parts = Parts(task, portion, non_blocking=bool(settings.pin_memory))
        self._wait_s = 0.0
        self._batches: Iterator[Any] = iter(_loader(task, portion, dataset))

    def passes(self) -> Iterator[Batch]:
        """The next batches. Time until one is here, its copy to the device issued, is waited for."""
        self._wait_s = 0.0
        for _ in range(self._num_passes):
            start_ns = time.monotonic_ns()
            batch = self._parts.batch(*next(self._batches))
            self._wait_s += (time.monotonic_ns() - start_ns) / 1e9
            yield batch

    def values(self) -> dict[str, float]:
        """How long the last step waited."""
        return {"input_wait_s": self._wait_s}

    def metrics(self) -> tuple[Metric, ...]:
        """How much of every step is padding."""
        return (Metric(name="padding_fraction", value=self._padding_fraction, unit=""),)

    def close(self) -> None:
        """End the loader's workers."""
        self._batches = iter(())


def _loader(task: Task, portion: Portion, dataset: Dataset[torch.Tensor]) -> DataLoader[Any]:
    settings = task.settings
    workers = settings.loader_workers or 0
    size = settings.micro_batch_size
    places: Any = Endless(portion.replica * size * settings.num_passes, size, settings.num_passes)
    return DataLoader(
        dataset,
        batch_sampler=places,
        num_workers=workers,
        collate_fn=Collate(settings.sequence_tokens),
        pin_memory=bool(settings.pin_memory),
        # A worker of another kind would import this process's main module anew.
        multiprocessing_context="fork" if workers else None,
    )


@contextmanager
def source(task: Task, portion: Portion) -> Iterator[Source]:
    """The samples of a point, from where its settings have them; what was made for them is removed in the end."""
    vocab_size = task.architecture["vocab_size"]
    if task.settings.loader_workers is None:
        yield Resident(task, portion, vocab_size)
        return
    numbers = rank_numbers()
    # One file for the ranks of a host: the first of them writes it.
    with scratch_folder(f"tokens.{numbers.rank - numbers.local_rank}") as folder:
        path = folder / "tokens.bin"
        if numbers.local_rank == 0:
            write_tokens(path, task.settings, vocab_size)
        task.ranks.barrier()
        found = layout(task.settings)
        loaded = Loaded(task, portion, TokenFile(path, found, vocab_size), found)
        try:
            yield loaded
        finally:
            loaded.close()
