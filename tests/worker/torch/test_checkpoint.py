"""Checkpoints come back bit for bit, and one that does not is named."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import torch

from pybench.run.events.contract import ordered_phases
from pybench.worker.backend import UnsupportedError, WrongResultError
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch import checkpoints as storage
from pybench.worker.backends.torch.checkpoints import Checkpoints, checkpoints, num_bytes
from pybench.worker.ranks import place_scratch
from tests.worker.torch.checkpoint_ranks import settings_of, spoiling
from tests.worker.torch.conftest import Start
from tests.worker.torch.train_ranks import TINY

RANK = TorchRanks(0, 1, torch.device("cpu"))
FORMATS = ("sharded", "torch_save", "safetensors")
TWO = [
    {"strategy": strategy, "file_format": file_format, "data_parallel": 2}
    for strategy in ("ddp", "fsdp")
    for file_format in FORMATS
]
SPOILED = {"strategy": "fsdp", "file_format": "sharded", "data_parallel": 2, "spoiled": True}


@pytest.fixture(autouse=True)
def exchange(tmp_path: Path) -> Path:
    place_scratch(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def two(start: Start, tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What two ranks found of each combination; the last one has a wrong bit on disk."""
    return start(2, [*TWO, SPOILED], tmp_path_factory.mktemp("two") / "found", "checkpoint_ranks.py")


@contextmanager
def alone(**spec: Any) -> Iterator[Checkpoints]:
    """A lone rank's trainer."""
    with checkpoints(settings_of(spec), TINY, RANK) as work:
        yield work


def _weights(work: Checkpoints) -> int:
    return sum(tensor.numel() for name, tensor in work.state.items() if name.startswith("model."))


@pytest.mark.parametrize("place", range(len(TWO)), ids=["-".join(map(str, spec.values())) for spec in TWO])
def test_two_ranks_get_their_state_back(two: list[list[dict[str, Any]]], place: int) -> None:
    """Weights and two moments of each, 4 bytes a number; what both replicas hold is written once."""
    first, second = (rank[place] for rank in two)
    with alone() as work:
        least = 3 * 4 * _weights(work)
    assert least < first["values"]["checkpoint_bytes"] < 1.3 * least
    assert 0 <= first["values"]["page_cache_fraction"] <= 1
    assert second["values"] == {}
    assert first["phases"] == second["phases"] == list(ordered_phases(settings_of(TWO[place])))


def test_a_wrong_bit_on_the_disk_ends_every_rank(two: list[list[dict[str, Any]]]) -> None:
    """With the name of the tensor and of the rank that holds it."""
    errors = [rank[-1]["error"] for rank in two]
    assert errors[0] == errors[1]
    assert re.search(r"checkpoint \(sharded\): (model|optimizer)\.\S+ \(rank [01]\) has other bits", errors[0])


@pytest.mark.parametrize("file_format", ["sharded", "safetensors"])
def test_a_wrong_bit_is_named(file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lone rank's too; the checkpoint before it was right."""
    with alone(file_format=file_format) as work:
        work.step(0)
        monkeypatch.setattr(storage, "size_bytes", spoiling)
        with pytest.raises(WrongResultError, match=rf"checkpoint \({file_format}\): \S+ \(rank 0\) has other bits"):
            work.step(1)


def test_a_load_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer's own numbers are overwritten before it."""
    with alone() as work:
        monkeypatch.setattr(work.files, "load", lambda *_: None)
        with pytest.raises(WrongResultError, match=r"model\.model\.embed_tokens\.weight \(rank 0\) and \d+ more"):
            work.step(0)


def test_adapters_alone_are_small() -> None:
    """The weights below them are frozen, and in no file."""
    with alone(contents="adapters", lora_rank=2) as adapters, alone(contents="weights") as weights:
        assert all("lora_" in name for name in adapters.state)
        assert 0 < num_bytes(adapters.state) < 0.1 * num_bytes(weights.state)
        assert not any(name.startswith("optimizer.") for name in weights.state)
        assert adapters.step(0).values["checkpoint_bytes"] < weights.step(0).values["checkpoint_bytes"]


def test_a_full_disk_is_named_before_anything_is_written(exchange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the needed and free bytes, and the remedy."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000_000))
    wanted = r"a checkpoint needs 66\.2 MiB, 9\.54 MiB are free; nothing was written: free some, give --runs"
    with pytest.raises(UnsupportedError, match=wanted), alone():
        pass
    assert not [path for path in exchange.rglob("*") if path.is_file()]


def test_nothing_is_left(exchange: Path) -> None:
    """Neither of a step nor of the point."""
    with alone() as work:
        work.step(0)
        assert not [path for path in exchange.rglob("*") if path.is_file()]
    assert not list(exchange.rglob("checkpoint"))


def test_the_page_cache_is_read_not_assumed(tmp_path: Path) -> None:
    """A file just written is in it; no file, no page."""
    assert storage.page_cache_fraction(tmp_path) == 0
    (tmp_path / "empty").touch()
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert storage.page_cache_fraction(tmp_path) == 1
