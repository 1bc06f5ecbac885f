"""The largest batch that fits, by trying."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from pybench.model.workloads.settings import AUTO
from pybench.model.workloads.train import Train
from pybench.worker.backend import UnsupportedError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.failure import cause_of

# A rank that runs out of memory alone leaves the others in a collective; it gives them this long to fail as well.
_PATIENCE = timedelta(minutes=2)


def find_batch_size(
    settings: Train, architecture: dict[str, Any], ranks: TorchRanks, attempt: Callable[[Task], None]
) -> int:
    """The most samples for each data-parallel rank with which ``attempt`` fits on every rank."""
    votes = distributed.new_group(backend="gloo", timeout=_PATIENCE) if ranks.world_size > 1 else None

    def fits(size: int) -> bool:
        failure = _out_of_memory(lambda: attempt(Task(_with(settings, size), architecture, ranks)))
        return _all_agree(failure, votes)

    return largest_fitting(fits, settings.sizes_to_try)


def largest_fitting(fits: Callable[[int], bool], sizes: Iterable[int]) -> int:
    """Doubling until one is too large, then bisection between the last that fits and that one.

    ``fits`` must hold up to some size and not above it. Raises :class:`UnsupportedError` when the smallest is too
    large.
    """
    ascending = list(sizes)
    good, position = -1, 0
    while position < len(ascending) and fits(ascending[position]):
        good = position
        position = next((n for n, size in enumerate(ascending) if size >= 2 * ascending[good]), len(ascending))
    bad = position
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(ascending[middle]):
            good = middle
        else:
            bad = middle
    if good < 0:
        raise UnsupportedError(f"batch_size_per_gpu = {AUTO!r}: not even {ascending[0]} fits into memory")
    return ascending[good]


def _with(settings: Train, size: int) -> Train:
    return replace(settings, batch_size_per_gpu=size)


def _out_of_memory(attempt: Callable[[], None]) -> BaseException | None:
    """What ``attempt`` ran out of, or ``None``; its memory is free again on return."""
    failure = None
    try:
        attempt()
    except (RuntimeError, MemoryError) as error:
        if cause_of(error) != "out_of_memory":
            raise
        failure = error.with_traceback(None)  # frames of this error and of its causes would keep the model
        failure.__context__ = failure.__cause__ = None
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return failure


def _all_agree(failure: BaseException | None, votes: distributed.ProcessGroup | None) -> bool:
    """Whether no rank failed. Raises ``failure`` when the others never come to vote."""
    if votes is None:
        return failure is None
    failed = torch.tensor([int(failure is not None)])
    try:
        distributed.all_reduce(failed, group=votes)
    except RuntimeError:
        if failure is not None:
            raise failure from None
        raise
    return not failed.item()
