"""What control steps tell, by hand."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

pytest.importorskip("transformers")
import torch

from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train import control
from tests.worker.torch.train_ranks import trained

CPU = torch.device("cpu")


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
    found = control.control_metrics(lambda: None, nullcontext(), TorchRanks(0, len(silent_s), CPU), 3)
    assert [metric.value for metric in found] == pytest.approx([exposed, gap])


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_lone_rank_exposes_no_communication(strategy: str) -> None:
    """What fully_shard copies on one GPU is no communication, though it takes time."""
    metrics = trained({"strategy": strategy, "control_steps": 1}, TorchRanks(0, 1, CPU))["metrics"]
    assert "batch_size_per_gpu" in metrics
    assert "exposed_communication_fraction" not in metrics
