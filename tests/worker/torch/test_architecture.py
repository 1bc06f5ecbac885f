"""Models filled part by part."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch
from torch import nn

from pybench.worker.backends.torch.architecture import Weights, build_model, empty_model
from tests.worker.torch.expert_loads import MIXTURE, expert_loads

CPU = torch.device("cpu")


def test_parts_add_up_to_the_whole(architecture: dict[str, Any]) -> None:
    """The same weights, whatever comes first; what is filled is not filled again."""
    whole = build_model(architecture, torch.float32, CPU, 0).state_dict()
    model = empty_model(architecture, torch.float32)
    weights = Weights(model, CPU, 0)
    weights.fill_parameters("model.layers.1")
    assert not any(weight.is_meta for weight in model.get_submodule("model.layers.1").parameters())
    assert all(weight.is_meta for weight in model.get_submodule("model.layers.0").parameters())
    with torch.no_grad():
        model.get_parameter("model.layers.1.mlp.up_proj.weight").zero_()
    weights.fill()
    for name, weight in model.state_dict().items():
        expected = torch.zeros_like(weight) if name == "model.layers.1.mlp.up_proj.weight" else whole[name]
        assert torch.equal(weight, expected), name


def test_weights_by_name_are_those_that_fill(architecture: dict[str, Any]) -> None:
    """All weights by name; a tied head comes once."""
    for tied in (False, True):
        values = {**architecture, "tie_word_embeddings": tied}
        whole = build_model(values, torch.float32, CPU, 0).state_dict()
        empty = empty_model(values, torch.float32)
        found = dict(Weights(empty, CPU, 0).named())
        assert set(whole) - set(found) == ({"lm_head.weight"} if tied else set())
        assert all(torch.equal(weight, whole[name]) for name, weight in found.items())
        assert all(weight.is_meta for weight in empty.parameters())


def test_a_weight_that_was_split_can_be_let_go(architecture: dict[str, Any]) -> None:
    """Or every rank would hold the whole model while it is sharded layer by layer."""
    model = empty_model(architecture, torch.float32)
    weights = Weights(model, CPU, 0)
    weights.fill_parameters("model.layers.0")
    layer: Any = model.get_submodule("model.layers.0.mlp.up_proj")
    whole = weakref.ref(layer.weight)
    layer.weight = nn.Parameter(layer.weight.detach()[:1].clone())
    gc.collect()
    assert whole() is None
    weights.fill()
    assert layer.weight.shape[0] == 1


def test_tied_weights_stay_one(architecture: dict[str, Any]) -> None:
    """Filled in two turns."""
    model: Any = empty_model({**architecture, "tie_word_embeddings": True}, torch.float32)
    weights = Weights(model, CPU, 0)
    weights.fill_parameters("model.embed_tokens")
    weights.fill()
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_mixtures_tokens_spread_over_its_experts() -> None:
    """In each of eight layers the fullest of 16 experts has less than twice the mean."""
    loads = expert_loads(build_model(MIXTURE, torch.float32, CPU, 0))
    assert len(loads) == 8
    assert all(load.sum() == 2048 and load.max() < 2 * load.float().mean() for load in loads)
