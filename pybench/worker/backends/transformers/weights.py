"""Random weights as a state dict, for the library's own loader to place or split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pybench.worker.seeds import WEIGHT_STD, weight_seed

# A block of this size, repeated: drawing every number of a large model would take minutes on a CPU.
_BLOCK = 2**20


def state_dict(kind: Any, config: Any, dtype: torch.dtype, seed: int) -> dict[str, torch.Tensor]:
    """Every weight of model class ``kind``, on the CPU, seeded by seed and name: the same on every rank."""
    return dict(named_weights(kind, config, dtype, seed))


def named_weights(kind: Any, config: Any, dtype: torch.dtype, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Each of them by its name, made when its turn comes; tied ones once."""
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in kind(config).named_parameters()}
    norm = 0.0 if config.model_type.startswith("gemma") else 1.0  # Gemma's norms multiply by 1 + weight
    for name, shape in shapes.items():
        yield name, _weight(name, shape, dtype, seed, norm)


def _weight(name: str, shape: torch.Size, dtype: torch.dtype, seed: int, norm: float) -> torch.Tensor:
    """``norm`` for norms, 0 for biases, else normal with ``WEIGHT_STD``."""
    if name.endswith("norm.weight"):
        return torch.full(shape, norm, dtype=dtype)
    if name.endswith("bias"):
        return torch.zeros(shape, dtype=dtype)
    generator = torch.Generator().manual_seed(weight_seed(seed, name))
    count = shape.numel()
    block = torch.empty(min(count, _BLOCK), dtype=dtype).normal_(0.0, WEIGHT_STD, generator=generator)
    return block.repeat(-(-count // len(block)))[:count].view(shape)
