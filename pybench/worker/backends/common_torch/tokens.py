"""Random tokens that belong to a sample, not to a rank."""

from __future__ import annotations

import torch

from pybench.model.workloads.generate import Generate
from pybench.worker.seeds import sample_seed


def sample_tokens(first: int, num_samples: int, length: int, vocab_size: int, seed: int) -> torch.Tensor:
    """Tokens of the samples ``first`` and following, on the CPU, each seeded by its own global index."""
    rows = []
    for index in range(first, first + num_samples):
        generator = torch.Generator().manual_seed(sample_seed(seed, index))
        rows.append(torch.randint(vocab_size, (length,), generator=generator))
    return torch.stack(rows)


def step_prompts(settings: Generate, replica: int, index: int, vocab_size: int) -> torch.Tensor:
    """Prompts of replica ``replica`` in step ``index``, on the CPU; all together are the same for any number."""
    batch_size = settings.batch_size // settings.data_parallel
    first = index * settings.batch_size + replica * batch_size
    return sample_tokens(first, batch_size, settings.prompt_tokens, vocab_size, settings.seed)
