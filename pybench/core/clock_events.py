"""What held a GPU's clock: the bits of NVML's clock event reasons that slow a GPU at work, in words."""

from __future__ import annotations

POWER_LIMIT = "power limit"
_WORDS = {
    0x04: POWER_LIMIT,
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_THROTTLE_REASONS = sum(bit for bit, word in _WORDS.items() if word != POWER_LIMIT)


def event_words(reasons: int) -> tuple[str, ...]:
    """Names of those bits of NVML's mask that slow a GPU at work; idleness and clocks set by hand are none."""
    return tuple(word for bit, word in _WORDS.items() if reasons & bit)


def is_throttled(reasons: int) -> bool:
    """Whether a thermal or power-brake slowdown was active; a board at its power limit is no fault."""
    return bool(reasons & _THROTTLE_REASONS)
