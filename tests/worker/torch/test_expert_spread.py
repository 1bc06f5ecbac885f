"""vLLM's dummy weights of a mixture, before and after they are changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch

from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.vllm.worker import GenerationWorker
from tests.worker.torch.expert_loads import CHOSEN, LAYERS, MIXTURE, TOKENS, expert_loads

CPU = torch.device("cpu")


def dummy_model() -> Any:
    """Every parameter as vLLM 0.20.2 draws it: one range, one seed (``initialize_single_dummy_weight``)."""
    model = build_model(MIXTURE, torch.bfloat16, CPU, 0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.uniform_(-1e-3, 1e-3, generator=torch.Generator().manual_seed(1234))
    return model


def test_tokens_of_dummy_weights_go_to_few_experts_until_they_are_spread() -> None:
    """Before, two of 16 experts get more than 9 of 10 tokens; after, the fullest gets less than twice the mean."""
    model = dummy_model()
    for load in expert_loads(model):
        assert load.sort().values[-CHOSEN:].sum() > 0.9 * CHOSEN * TOKENS
    worker = GenerationWorker()
    worker.model_runner = SimpleNamespace(model=model)
    assert worker.pybench_spread_experts(0) == LAYERS
    spread = expert_loads(model)
    assert len(spread) == LAYERS
    assert all(load.max() < 2 * load.float().mean() for load in spread)
    assert all(torch.isfinite(weight).all() for weight in model.parameters())


def test_every_gpu_has_the_same_routers() -> None:
    """By the seed and a router's name, whatever part of the embedding a GPU has."""
    first, second, other = (dummy_model() for _ in range(3))
    for model, seed in ((first, 7), (second, 7), (other, 8)):
        worker = GenerationWorker()
        worker.model_runner = SimpleNamespace(model=model)
        worker.pybench_spread_experts(seed)
    [own, same, another] = ([layer.mlp.router.weight for layer in one.model.layers] for one in (first, second, other))
    assert all(torch.equal(a, b) and not torch.equal(a, c) for a, b, c in zip(own, same, another, strict=True))
    assert not torch.equal(own[0], own[1])
