"""vLLM's dummy weights of a mixture, before and after they are changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers")
import torch

from pybench.worker.backends.torch.architecture import build_model
from pybench.worker.backends.torch.attention import sequence_masks
from pybench.worker.backends.vllm.generation_worker import GenerationWorker
from tests.worker.torch.train_ranks import GPT_OSS

CPU = torch.device("cpu")
EXPERTS, CHOSEN, LAYERS, TOKENS, VOCABULARY = 16, 2, 8, 1024, 2048
SHAPE = {
    **GPT_OSS,
    "hidden_size": 512,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "num_key_value_heads": 2,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN,
}


def dummy_model() -> Any:
    """Every parameter as vLLM 0.20.2 draws it: one range, one seed (``initialize_single_dummy_weight``)."""
    model = build_model(SHAPE, torch.bfloat16, CPU, 0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.uniform_(-1e-3, 1e-3, generator=torch.Generator().manual_seed(1234))
    return model


def loads(model: Any) -> list[torch.Tensor]:
    """How many tokens each expert of each layer got."""
    found: list[torch.Tensor] = []

    def count(_router: Any, _given: Any, chosen: Any) -> None:
        found.append(torch.bincount(chosen[2].flatten(), minlength=EXPERTS))

    for layer in model.model.layers:
        layer.mlp.router.register_forward_hook(count)
    samples = torch.randint(0, VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model(input_ids=samples, attention_mask=sequence_masks(model.config, TOKENS, CPU), use_cache=False)
    return found


def test_tokens_of_dummy_weights_go_to_few_experts_until_they_are_spread() -> None:
    """As they are, the two fullest of 16 get more than 9 of 10 tokens; then the fullest less than twice the mean."""
    model = dummy_model()
    for load in loads(model):
        assert load.sort().values[-CHOSEN:].sum() > 0.9 * CHOSEN * TOKENS
    worker = GenerationWorker()
    worker.model_runner = SimpleNamespace(model=model)
    assert worker.pybench_spread_experts(0) == LAYERS
    spread = loads(model)
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
