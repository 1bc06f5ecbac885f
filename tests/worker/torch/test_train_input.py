"""Samples from a loader: the same whatever reads them, and what is waited for shows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.data import Samples, Source
from pybench.worker.backends.torch.train.learner import Batch, Portion, Task
from pybench.worker.backends.torch.train.training import training
from tests.worker.torch.train_ranks import TINY, settings_of

RANK = TorchRanks(0, 1, torch.device("cpu"))
LOADED: dict[str, Any] = {"loader_workers": 0}


def _task(**options: Any) -> Task:
    return Task(settings_of(options), TINY, RANK)


def _steps(count: int = 2, portion: Portion | None = None, **options: Any) -> list[list[Batch]]:
    """The passes of the first steps."""
    with closing(Source(_task(**options), portion or Portion())) as samples:
        return [list(samples.passes()) for _ in range(count)]


def _same(one: list[list[Batch]], other: list[list[Batch]]) -> bool:
    pairs = zip(chain(*one), chain(*other), strict=True)
    return all(torch.equal(a.tokens, b.tokens) and torch.equal(a.labels, b.labels) for a, b in pairs)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
def test_the_number_of_workers_changes_no_token() -> None:
    """None, four, and samples that lie on the device, over two passes a step."""
    resident = _steps(grad_accum=2)
    assert [len(step) for step in resident] == [2, 2]
    for workers in (0, 4):
        assert _same(_steps(grad_accum=2, loader_workers=workers), resident)


def test_ranks_share_what_one_rank_would_see() -> None:
    """Two replicas' halves are the whole."""
    (whole,), *_ = _steps(1, **LOADED)
    halves = [_steps(1, Portion(replica=n), **LOADED, data_parallel=2)[0][0] for n in (0, 1)]
    assert torch.equal(torch.cat([half.tokens for half in halves]), whole.tokens)
    assert torch.equal(torch.cat([half.labels for half in halves]), whole.labels)


class Slow(Samples):
    """As a file system that takes 20 ms for each sample."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.02)
        return super().__getitem__(index)


def _wait_s(dataset: type[Samples], settings: Train) -> float:
    samples = Source(Task(settings, TINY, RANK), Portion(), dataset(settings, 256))
    list(samples.passes())
    return samples.values()["input_wait_s"]


def test_a_slow_data_set_is_waited_for() -> None:
    """Eight samples of 20 ms in the rank itself: no step begins before."""
    settings = settings_of({"loader_workers": 0})
    assert _wait_s(Slow, settings) >= 8 * 0.02
    assert _wait_s(Samples, settings) > 0


def _losses(**options: Any) -> Iterator[tuple[float | None, dict[str, float]]]:
    with training(settings_of(options), TINY, RANK) as work:
        for index in range(3):
            outcome = work.step(index)
            yield outcome.loss, outcome.values


def test_a_loader_trains_as_samples_on_the_device_do() -> None:
    """The same losses to the bit, and only a loader is waited for."""
    loaded, resident = list(_losses(loader_workers=1)), list(_losses())
    assert [loss for loss, _ in loaded] == [loss for loss, _ in resident]
    assert all(values["input_wait_s"] > 0 for _, values in loaded)
    assert all(values == {} for _, values in resident)
