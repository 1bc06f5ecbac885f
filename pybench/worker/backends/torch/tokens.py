"""Random tokens that belong to a sample, not to a rank."""

from __future__ import annotations

import torch


def sample_tokens(first: int, num_samples: int, length: int, vocab_size: int, seed: int) -> torch.Tensor:
    """Tokens of the samples ``first`` and following, on the CPU, each seeded by its own global index."""
    rows = []
    for index in range(first, first + num_samples):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + index)
        rows.append(torch.randint(vocab_size, (length,), generator=generator))
    return torch.stack(rows)
