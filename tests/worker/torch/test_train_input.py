"""Samples from a loader: the same whatever reads them, and what is waited for shows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import numpy as np
import torch

from pybench.model.workloads.train import Train
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Batch, Portion, Task
from pybench.worker.backends.torch.train.loader import Loaded, source
from pybench.worker.backends.torch.train.loss import IGNORED
from pybench.worker.backends.torch.train.token_file import TokenFile, layout, sample_lengths, token_type, write_tokens
from pybench.worker.backends.torch.train.training import training
from pybench.worker.ranks import place_scratch
from tests.worker.torch.train_ranks import TINY, settings_of

RANK = TorchRanks(0, 1, torch.device("cpu"))
UNEQUAL: dict[str, Any] = {"loader_workers": 0, "sample_tokens": 10, "length_spread_fraction": 0.5}


@pytest.fixture(autouse=True)
def exchange(tmp_path: Path) -> Path:
    place_scratch(tmp_path)
    return tmp_path


def _task(**options: Any) -> Task:
    return Task(settings_of(options), TINY, RANK)


def _steps(count: int = 2, portion: Portion | None = None, **options: Any) -> list[list[Batch]]:
    """The passes of the first steps."""
    with source(_task(**options), portion or Portion()) as samples:
        return [list(samples.passes()) for _ in range(count)]


def _same(one: list[list[Batch]], other: list[list[Batch]]) -> bool:
    pairs = zip(chain(*one), chain(*other), strict=True)
    return all(torch.equal(a.tokens, b.tokens) and torch.equal(a.labels, b.labels) for a, b in pairs)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
def test_the_number_of_workers_changes_no_token(exchange: Path) -> None:
    """None, four, and samples that lie on the device, over two passes a step; nothing is left of the file."""
    resident = _steps(grad_accum=2)
    assert [len(step) for step in resident] == [2, 2]
    for workers in (0, 4):
        assert _same(_steps(grad_accum=2, loader_workers=workers), resident)
    assert not list(exchange.rglob("tokens*"))


def test_ranks_share_what_one_rank_would_see() -> None:
    """Two replicas' halves are the whole, unequal samples too."""
    (whole,), *_ = _steps(1, **UNEQUAL)
    halves = [_steps(1, Portion(replica=n), **UNEQUAL, data_parallel=2)[0][0] for n in (0, 1)]
    assert torch.equal(torch.cat([half.tokens for half in halves]), whole.tokens)
    assert torch.equal(torch.cat([half.labels for half in halves]), whole.labels)


def test_unequal_samples_are_padded_and_padding_is_not_predicted() -> None:
    """Lengths from 5 to 15 of 16; the metric is the share of tokens that none of them has."""
    lengths = sample_lengths(settings_of(UNEQUAL), 8)
    assert set(lengths) <= set(range(5, 16))
    assert len(set(lengths)) > 1
    with source(_task(**UNEQUAL), Portion()) as samples:
        (batch,) = samples.passes()
        (padding,) = samples.metrics()
        assert samples.num_labels == sum(lengths) - 8 == int((batch.labels != IGNORED).sum())
    assert padding.value == pytest.approx(1 - sum(lengths) / (8 * 16))
    for row, length in enumerate(lengths):
        assert not batch.tokens[row, length:].any()
        assert torch.equal(batch.labels[row, : length - 1], batch.tokens[row, 1:length])
        assert (batch.labels[row, length - 1 :] == IGNORED).all()


def test_packed_samples_fill_every_sequence() -> None:
    """One after another and cut where a sequence ends: the file's tokens, none of them padding."""
    (batch,), *_ = _steps(1, **UNEQUAL, packing=True)
    (apart,), *_ = _steps(1, **UNEQUAL)
    first, second = sample_lengths(settings_of({**UNEQUAL, "packing": True}), 64)[:2]
    stream = batch.tokens.flatten()
    assert torch.equal(stream[:first], apart.tokens[0, :first])
    assert torch.equal(stream[first : first + second][:5], apart.tokens[1, :5])
    assert (batch.labels != IGNORED).sum() == 8 * 15
    assert layout(settings_of({**UNEQUAL, "packing": True})).padding_fraction == 0


def test_tokens_fit_the_vocabulary_and_their_type(tmp_path: Path) -> None:
    """Two bytes hold 65,536 words; one more needs four."""
    assert token_type(2**16) == np.uint16
    assert token_type(2**16 + 1) == np.uint32
    for vocabulary in (256, 100_000):
        write_tokens(tmp_path / "t", settings_of({"loader_workers": 0}), vocabulary)
        found = np.fromfile(tmp_path / "t", dtype=token_type(vocabulary))
        assert len(found) == 8 * 16
        assert found.max() < vocabulary


class Slow(TokenFile):
    """As a file system that takes 20 ms for each sample."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.02)
        return super().__getitem__(index)


def _wait_s(dataset: type[TokenFile], folder: Path, settings: Train) -> float:
    write_tokens(folder / "t", settings, 256)
    found = layout(settings)
    samples = Loaded(Task(settings, TINY, RANK), Portion(), dataset(folder / "t", found, 256), found)
    list(samples.passes())
    return samples.values()["input_wait_s"]


def test_a_slow_data_set_is_waited_for(tmp_path: Path) -> None:
    """Eight samples of 20 ms in the rank itself: no step begins before."""
    settings = settings_of({"loader_workers": 0})
    assert _wait_s(Slow, tmp_path, settings) >= 8 * 0.02
    assert _wait_s(TokenFile, tmp_path, settings) > 0


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
