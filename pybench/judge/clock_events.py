"""What held a GPU's clock, in words: NVML's clock event reasons."""

from __future__ import annotations

POWER_LIMIT = "power limit"
_WORDS = {
    0x04: POWER_LIMIT,
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def event_words(reasons: int) -> tuple[str, ...]:
    """Names of those bits of NVML's mask that slow a GPU at work; idleness and clocks set by hand are none."""
    return tuple(word for bit, word in _WORDS.items() if reasons & bit)
