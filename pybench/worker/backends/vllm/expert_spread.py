"""vLLM's dummy weights of a mixture, changed so that its tokens spread over the experts.

vLLM draws every weight from one narrow range, biases too (``initialize_dummy_weights``). Beside a router's bias its
products vanish, so that nearly all tokens go to the same few experts, and a round reads the weights of these alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from pybench.worker.seeds import weight_seed

_EMBEDDING = (".embedding.weight", ".embed_tokens.weight")


@torch.no_grad()
def spread(parameters: Iterable[tuple[str, torch.Tensor]], seed: int) -> int:
    """Change embeddings and routers in place; returns how many routers there are.

    Embeddings become large beside what layers add, so that tokens stay apart; routers' rows become random and of one
    length, as the expert with the longest would be chosen most. A router is the same on every GPU.
    """
    num_routers = 0
    for name, weight in parameters:
        if name.endswith(_EMBEDDING):
            generator = torch.Generator(weight.device).manual_seed(weight_seed(seed, name))
            weight.normal_(0.0, 1.0, generator=generator)
        elif name.endswith(".router.bias"):
            weight.zero_()
        elif name.endswith(".router.weight"):
            generator = torch.Generator().manual_seed(weight_seed(seed, name))
            rows = torch.randn(weight.shape, generator=generator)
            weight.copy_(rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True))
            num_routers += 1
    return num_routers
