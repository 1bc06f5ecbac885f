"""Random operands, and as many of them that no cache holds them all."""

from __future__ import annotations

from pathlib import Path

import torch

_L3 = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
# Where the kernel does not report it: as much as one complex of recent server CPUs has.
_USUAL_L3_BYTES = 32 * 2**20
_BYTES_PER_KIB = 1024
# Twice the cache, so that what a rotation comes back to is gone.
_CACHES = 2
_WORD_BYTES = 8


def cache_bytes(device: torch.device) -> int:
    """Size of the last cache before the device's memory."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    text = _L3.read_text().strip() if _L3.exists() else ""
    return int(text[:-1]) * _BYTES_PER_KIB if text.endswith("K") else _USUAL_L3_BYTES


def num_sets(device: torch.device, set_bytes: int) -> int:
    """Sets of operands to rotate through: at least two, together larger than twice the cache."""
    return max(2, _CACHES * cache_bytes(device) // set_bytes + 1)


def random_matrix(rows: int, columns: int, dtype: torch.dtype, device: torch.device, seed: int) -> torch.Tensor:
    """Normal values, never zeros: how many bits toggle decides the power, and so the clock.

    Drawn on ``device``, for which a CPU takes seconds; devices of two kinds draw different values from one seed.
    """
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, device=device).to(dtype)


def random_bytes(count: int, device: torch.device, seed: int) -> torch.Tensor:
    """``count`` bytes, each value as likely as any other: moving a constant draws fewer watts than moving data."""
    generator = torch.Generator(device=device).manual_seed(seed)
    words = torch.empty(-(-count // _WORD_BYTES), dtype=torch.int64, device=device)
    return words.random_(-(2**63), None, generator=generator).view(torch.uint8)[:count]
