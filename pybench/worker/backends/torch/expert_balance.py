"""Random weights under which a mixture's tokens spread over its experts evenly.

Plain random weights do not do that: what an expert adds is nearly the same for all tokens, so that from the second
layer on most tokens go to the same few experts. Here some of the hidden numbers are written by the embedding alone, and
routers read these only. Shapes and operations stay the same.
"""

from __future__ import annotations

import torch

from pybench.worker.seeds import WEIGHT_STD

# Of the hidden numbers, one in so many is the routers'.
_SHARE = 16


def balanced(name: str, weight: torch.Tensor, hidden: int) -> torch.Tensor:
    """Weight ``name`` of a mixture whose layers exchange ``hidden`` numbers, changed in place."""
    width = hidden // _SHARE
    if name.endswith("embed_tokens.weight"):
        weight[:, :width] /= WEIGHT_STD
    elif name.endswith("router.weight"):
        # Of equal length: the expert with the longest row would be chosen most.
        weight[:, :width] /= torch.linalg.vector_norm(weight[:, :width], dim=1, keepdim=True)
        weight[:, width:] = 0
    elif name.endswith("o_proj.weight"):
        weight[:width] = 0
    elif name.endswith("experts.down_proj"):
        weight[..., :width] = 0
    return weight
