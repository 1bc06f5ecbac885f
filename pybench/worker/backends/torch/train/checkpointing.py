"""Which activations backward computes again."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

_ATEN = torch.ops.aten
# The costly ones: selective checkpointing keeps their results and computes only the cheap rest again.
_KEPT = {
    _ATEN.mm.default,
    _ATEN.addmm.default,
    _ATEN.bmm.default,
    _ATEN._scaled_dot_product_flash_attention.default,  # noqa: SLF001 - operators' names
    _ATEN._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
    _ATEN._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001
}


def checkpoint_layers(model: Any, kind: Literal["none", "selective", "full"]) -> None:
    """Checkpoint every decoder layer of ``model``."""
    if kind == "none":
        return
    options: dict[str, Any] = {"use_reentrant": False}
    if kind == "selective":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


def _policy(_context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE
