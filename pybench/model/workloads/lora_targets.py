"""The projections that LoRA gives adapters."""

from __future__ import annotations

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_PROJECTIONS: dict[str, tuple[str, ...]] = {
    "query_value": ("q_proj", "v_proj"),
    "attention": _ATTENTION,
    "all_linear": (*_ATTENTION, "gate_proj", "up_proj", "down_proj"),
}


def projections(lora_targets: str | None) -> tuple[str, ...]:
    """Names of a layer's projections, as transformers has them, for a setting; its default is ``query_value``."""
    return _PROJECTIONS[lora_targets or "query_value"]
