"""Memory of DeepSpeed's ZeRO on each GPU, by its stage and what lies on the host."""

from __future__ import annotations

from pybench.model.workloads.train import Train

BUCKET_ELEMENTS = 5e8
"""Gradients that are reduced together: DeepSpeed's default ``reduce_bucket_size``."""
HALF_BYTES = 2
"""For each weight: itself, or its gradient, in 16 bits."""
LASTING_BYTES = 12
"""For each weight: itself and two states in float32."""
_UPDATE_BYTES = 8  # for each weight, when it is updated
# Weights that stage 3 updates together, by DeepSpeed's own default.
_SUB_GROUP = 1e9


def zero_bytes(settings: Train, weights: float, passing: float) -> float:
    """The stage decides what is split, offloading what lies on the host; ``passing`` are kept activations and logits.

    With states on the host only gradients of 16 bits lie beside the weights; they come as activations go. Else the most
    is needed in backward, or when DeepSpeed 0.19 updates: then a part has its gradients three times, those of backward
    and in one piece, both of 16 bits, and in float32, or, later, in float32 beside a root of AdamW's second moment.
    """
    part = weights / settings.data_parallel
    splits_weights = settings.zero_stage == 3  # noqa: PLR2004 - stages have numbers
    held = HALF_BYTES * (part if splits_weights else weights)
    if settings.offload_parameters:
        return passing
    if settings.offload_optimizer:
        return held + max(held, passing)
    gradients = HALF_BYTES * (weights if settings.zero_stage == 1 else part)
    bucket = HALF_BYTES * BUCKET_ELEMENTS
    lasting = held + LASTING_BYTES * part
    if splits_weights:
        return lasting + gradients + bucket + max(passing, _UPDATE_BYTES * min(_SUB_GROUP, part))
    return lasting + max(gradients + bucket + passing, _UPDATE_BYTES * part)
