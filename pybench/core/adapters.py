"""What LoRA (arXiv:2106.09685) trains."""

from __future__ import annotations

from pybench.model.decoder_shape import DecoderShape
from pybench.model.workloads.train import Train, projections


def adapter_parameters(shape: DecoderShape, settings: Train) -> int | None:
    """Weights of all adapters: rank times inputs and outputs of each target, in every layer; ``None`` without LoRA.

    Each projection counts by itself, also where a model has several in one.
    """
    if settings.lora_rank is None:
        return None
    return shape.layers * settings.lora_rank * sum(sum(sides) for sides in adapted_sides(shape, settings))


def adapted_sides(shape: DecoderShape, settings: Train) -> list[tuple[int, int]]:
    """Inputs and outputs of each projection of a layer that has an adapter."""
    hidden, inner = shape.hidden, shape.intermediate
    queries, keys = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    sides = {
        "q_proj": (hidden, queries),
        "k_proj": (hidden, keys),
        "v_proj": (hidden, keys),
        "o_proj": (queries, hidden),
        "gate_proj": (hidden, inner),
        "up_proj": (hidden, inner),
        "down_proj": (inner, hidden),
    }
    return [sides[name] for name in projections(settings.lora_targets)]
