"""Each setting of a training step changes what it should, and nothing else: losses of two ranks and of one."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("accelerate")
pytest.importorskip("bitsandbytes")
import torch

from pybench.worker.backends.common_torch.process_group import TorchRanks
from tests.worker.torch.conftest import Start
from tests.worker.torch.test_train_strategies import CP, DDP, FSDP, NORM, TP, Spec, shape
from tests.worker.torch.train_ranks import trained

KNOBS: dict[str, Spec] = {
    "ddp_norm": {**DDP, **NORM, "grad_accum": 2},
    "fsdp_norm": {**FSDP, **NORM, "activation_checkpointing": "full"},
    "accelerate_norm": {"strategy": "accelerate", **DDP, **NORM},
    "tensor_norm": {**TP, **NORM},
    "context_norm": {**CP, **NORM},
    "fsdp_context_norm": {**FSDP, **CP, **NORM, "strategy": "fsdp", "data_parallel": 1, "grad_accum": 2},
    "ddp_8bit": {**DDP, "optimizer": "adamw_8bit"},
    "ddp_paged": {**DDP, "optimizer": "paged_adamw"},
    "ddp_dropout": {**DDP, "lora_rank": 4, "lora_dropout": 0.5},
}


@pytest.fixture(scope="module")
def two(start: Start, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The results of the first of two ranks, by spec."""
    first, second = start(2, list(KNOBS.values()), tmp_path_factory.mktemp("two") / "found")
    assert [one["losses"] for one in first] == [one["losses"] for one in second]
    return dict(zip(KNOBS, first, strict=True))


def alone(spec: Spec) -> Any:
    """Losses of a lone rank."""
    return trained(spec, TorchRanks(0, 1, torch.device("cpu")))["losses"]


@pytest.fixture(scope="module")
def usual() -> Any:
    """Losses of a lone rank without any of the settings."""
    return alone({})


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "accelerate", "tensor", "context", "fsdp_context"])
def test_gradients_have_one_norm_however_they_are_split(two: Any, strategy: str) -> None:
    """The limit holds for the norm over all ranks' parts; without it this rate makes the loss rise again."""
    limited = alone(shape(KNOBS["ddp_norm"]))
    assert two[f"{strategy}_norm"]["losses"] == pytest.approx(limited, rel=1e-4)
    unlimited = alone({name: value for name, value in NORM.items() if name != "max_grad_norm"})
    assert limited[0] == unlimited[0]
    assert limited[-1] < unlimited[-1] - 0.1


def test_optimizers_of_bitsandbytes_train_nearly_the_same(two: Any, usual: Any) -> None:
    """Pages change nothing; eight bits round the states, by less than a thousandth of the loss."""
    assert two["ddp_paged"]["losses"] == pytest.approx(usual, rel=1e-5)
    assert two["ddp_8bit"]["losses"] == pytest.approx(usual, rel=1e-3)
    assert two["ddp_8bit"]["losses"] != pytest.approx(usual, rel=5e-6)


def test_dropout_shows_from_the_second_step_on(two: Any) -> None:
    """At first the adapters' product is zero, whatever is left of their inputs."""
    with_it, without = two["ddp_dropout"]["losses"], alone({"lora_rank": 4})
    assert with_it[0] == pytest.approx(without[0], rel=1e-6)
    assert with_it[-1] != pytest.approx(without[-1], rel=1e-4)
    assert with_it[-1] < with_it[0]
