"""Which activations backward computes again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

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


def checkpoint_layers(model: Any, kind: Literal["none", "selective", "full"], *, compiled: bool = False) -> None:
    """Checkpoint every decoder layer of ``model``; ``compiled`` where layers are compiled afterwards."""
    if kind == "none":
        return
    options: dict[str, Any] = {"use_reentrant": False}
    if kind == "selective":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    if kind == "selective" and compiled:
        # From outside a compiled layer its matrix products can't be seen: inductor turns them into kernels of its own.
        for layer in model.model.layers:
            layer.forward = _checkpointed(layer.forward, options)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


def _checkpointed(forward: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """``forward`` with its checkpoint inside, which compiling sees; a partial object would not be traced."""

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, **options, **kwargs)

    return checkpointed


def _policy(_context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE
