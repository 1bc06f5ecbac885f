"""Metrics of control steps, computed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

pytest.importorskip("transformers")
import torch

from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train import training as control
from tests.worker.torch.torchrun import torchrun
from tests.worker.torch.train_ranks import trained

CPU = torch.device("cpu")
ORDINARY = ("step", "step", "step")


@pytest.mark.parametrize(
    ("silent_s", "exposed", "gap"),
    [([0.8, 1.0], 0.5, 0.25), ([0.8, 1.0, 0.7, 0.9], 0.5, 0.25), ([2.5, 2.5], 0.0, 0.0)],
)
def test_the_slowest_rank_is_held_against_the_others(
    monkeypatch: pytest.MonkeyPatch, silent_s: list[float], exposed: float, gap: float
) -> None:
    """Of two ranks against the faster one, of more against the others' median; never less than nothing is exposed."""
    monkeypatch.setattr(control, "_timed_s", lambda *_: 2.0)
    monkeypatch.setattr(control, "_on_all_ranks", lambda *_: silent_s)
    monkeypatch.setattr(TorchRanks, "unanimous", lambda _, here: here)
    found = control.control_metrics(lambda: None, nullcontext(), TorchRanks(0, len(silent_s), CPU), 3)
    assert [metric.value for metric in found] == pytest.approx([exposed, gap])


@pytest.mark.parametrize(
    ("fails_at", "made"), [("gathering", 0), ("first", 0), ("last", 3), ("other rank's second", 2)]
)
def test_without_memory_for_silent_steps_all_ranks_leave_them(
    monkeypatch: pytest.MonkeyPatch, fails_at: str, made: int
) -> None:
    """Their metrics are unknown; the measured steps stay."""
    votes: list[bool] = []
    steps = {"first": [1], "last": [4]}.get(fails_at, [])
    done: list[str] = []

    def unanimous(_: TorchRanks, here: bool) -> bool:
        votes.append(here)
        return here and not (fails_at == "other rank's second" and len(votes) == 3)

    def train() -> None:
        number = len(done) - len(ORDINARY) + 1
        if number in steps:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB")
        done.append("step")

    @contextmanager
    def silence() -> Iterator[None]:
        if fails_at == "gathering":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB")
        yield

    monkeypatch.setattr(TorchRanks, "unanimous", unanimous)
    monkeypatch.setattr(TorchRanks, "barrier", lambda _: None)
    assert control.control_metrics(train, silence(), TorchRanks(0, 2, CPU), len(ORDINARY)) == ()
    assert len(done) == len(ORDINARY) + made


def test_a_rank_without_memory_keeps_no_other_waiting(warm_python: Path, tmp_path: Path) -> None:
    """Both go on behind the step that one of them could not make."""
    torchrun(warm_python, 2, "silent_memory.py", str(tmp_path / "steps"))
    assert [(tmp_path / f"steps.{rank}").read_text() for rank in (0, 1)] == ["5 0", "4 0"]


def test_another_failure_of_a_silent_step_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no lack of memory."""

    class Silence(AbstractContextManager[None]):
        def __enter__(self) -> None:
            raise RuntimeError("NCCL error")

        def __exit__(self, *_: object) -> None:
            """Never entered."""

    monkeypatch.setattr(TorchRanks, "barrier", lambda _: None)
    with pytest.raises(RuntimeError, match="NCCL error"):
        control.control_metrics(lambda: None, Silence(), TorchRanks(0, 2, CPU), 1)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_lone_rank_exposes_no_communication(strategy: str) -> None:
    """The copies of fully_shard on one GPU take time, but are no communication."""
    metrics = trained({"strategy": strategy, "control_steps": 1}, TorchRanks(0, 1, CPU))["metrics"]
    assert "batch_size_per_gpu" in metrics
    assert "exposed_communication_fraction" not in metrics
