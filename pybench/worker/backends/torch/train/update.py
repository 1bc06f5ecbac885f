"""Loss, optimizer and adapters of a training, the same for every strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from pybench.model.workloads.train import Train, projections
from pybench.worker.backends.common_torch.samples import IGNORED
from pybench.worker.imports import needs_package

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Takes logits of shape (samples, tokens, vocabulary) and labels of shape (samples, tokens)."""
HeadLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""The summed loss of hidden states of shape (tokens, hidden units) and labels of shape (tokens,)."""
Read = Callable[[torch.Tensor], torch.Tensor]


def summed_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Sum over all labels, in nats and float32; the sum, since ranks and passes may see different numbers of them."""
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def loss_of(settings: Train) -> Loss:
    """:func:`summed_loss`; with ``compile`` in fused kernels."""
    return torch.compile(summed_loss) if settings.compile else summed_loss


def return_loss(model: Any, loss: HeadLoss, chunk_tokens: int | None, read: Read | None = None) -> None:
    """Have ``model``, called with labels, return its summed ``loss`` of its hidden states, after ``read``.

    ``chunk_tokens`` is the number of tokens whose logits exist at a time. Logits of a long batch need more memory than
    all activations: 12 bytes each, with their gradient. The head runs a second time in backward, as every recomputed
    layer does.
    """
    with_logits = model.forward

    def forward(*, labels: torch.Tensor | None = None, **inputs: Any) -> Any:
        if labels is None:
            return with_logits(**inputs)
        hidden = model.model(**inputs).last_hidden_state
        given = (hidden if read is None else read(hidden)).flatten(0, 1), labels.flatten()
        if chunk_tokens is None:
            return loss(*given)
        parts = zip(*(torch.split(each, chunk_tokens) for each in given), strict=True)
        return torch.stack([checkpoint(loss, *part, use_reentrant=False) for part in parts]).sum()

    model.forward = forward


# The same for every library: each has its own default.
WEIGHT_DECAY = 0.01
# Their names in bitsandbytes (arXiv:2110.02861).
_OF_BITSANDBYTES = {"adamw_8bit": "AdamW8bit", "paged_adamw": "PagedAdamW", "paged_adamw_8bit": "PagedAdamW8bit"}


def optimizer_of(parameters: Iterable[nn.Parameter], settings: Train) -> torch.optim.Optimizer:
    """The settings' optimizer over the trainable ones. Raises ``MissingPackageError`` without bitsandbytes."""
    listed = [{"params": group} for group in by_mesh(parameters)]
    name = settings.optimizer or "adamw"
    rates: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": WEIGHT_DECAY}
    if name == "adamw":
        return torch.optim.AdamW(listed, fused=settings.fused_adamw, **rates)
    if name == "sgd":
        return torch.optim.SGD(listed, **rates)
    with needs_package(f"optimizer = {name!r}", "qlora"):
        from bitsandbytes import optim
    optimizer: torch.optim.Optimizer = getattr(optim, _OF_BITSANDBYTES[name])(listed, **rates)
    return optimizer


def lora_options(settings: Train) -> dict[str, Any]:
    """The adapters' shape, by the names of peft's config; the settings have a rank."""
    rank = settings.lora_rank
    assert rank is not None
    return {
        "r": rank,
        "lora_alpha": settings.lora_alpha or 2 * rank,
        "target_modules": list(projections(settings.lora_targets)),
        "lora_dropout": settings.lora_dropout or 0.0,
        "bias": "none",
    }


def clip(parameters: Iterable[nn.Parameter], max_norm: float) -> None:
    """Scale all gradients down to the joint norm ``max_norm`` where theirs is greater."""
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    if not trained:  # FSDP with mixed precision keeps the gradients of steps without exchange to itself
        return
    gradients = ([each.grad for each in group if each.grad is not None] for group in by_mesh(trained))
    norms = map(torch.nn.utils.get_total_norm, gradients)
    squares = [(norm.full_tensor() if isinstance(norm, DTensor) else norm) ** 2 for norm in norms]
    total = torch.stack(squares).sum().sqrt()
    for group in by_mesh(trained):
        torch.nn.utils.clip_grads_with_norm_(group, max_norm, total)


def by_mesh(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Trainable parameters, a group for each mesh: one kernel can't mix split and whole weights."""
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
            groups.setdefault(mesh, []).append(parameter)
    return list(groups.values())
