"""A small mixture of experts, and how its tokens spread over them."""

from __future__ import annotations

from typing import Any

import torch

from pybench.worker.backends.torch.attention import sequence_masks
from tests.worker.torch.train_ranks import GPT_OSS

EXPERTS, CHOSEN, LAYERS, TOKENS, VOCABULARY = 16, 2, 8, 1024, 2048
MIXTURE = {
    **GPT_OSS,
    "hidden_size": 512,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "num_key_value_heads": 2,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN,
}


def expert_loads(model: Any) -> list[torch.Tensor]:
    """How many of ``TOKENS`` each expert of each layer gets."""
    found: list[torch.Tensor] = []

    def count(_router: Any, _given: Any, chosen: Any) -> None:
        found.append(torch.bincount(chosen[2].flatten(), minlength=EXPERTS))

    hooks = [layer.mlp.router.register_forward_hook(count) for layer in model.model.layers]
    samples = torch.randint(0, VOCABULARY, (1, TOKENS), generator=torch.Generator().manual_seed(0))
    mask = sequence_masks(model.config, TOKENS, torch.device("cpu"))
    with torch.no_grad():
        model(input_ids=samples, attention_mask=mask, use_cache=False)
    for hook in hooks:
        hook.remove()
    return found
