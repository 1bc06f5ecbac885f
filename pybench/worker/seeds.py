"""Seeds of weights and samples: of a weight by its name, of a sample by its number, for any rank or replica."""

from __future__ import annotations

import hashlib

WEIGHT_STD = 0.02
"""Standard deviation of random weights."""
_SEED_BYTES = 7  # torch's generators take 64 bits with a sign
_SAMPLES_PER_SEED = 1_000_003  # a prime, so that neighbouring seeds share no samples in practice


def weight_seed(seed: int, name: str) -> int:
    """Seed of the weight ``name``."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:_SEED_BYTES], "big")


def sample_seed(seed: int, index: int) -> int:
    """Seed of the sample with the global number ``index``."""
    return seed * _SAMPLES_PER_SEED + index
