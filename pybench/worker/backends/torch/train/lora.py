"""Low-rank adapters (LoRA, arXiv:2106.09685) by peft."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from pybench.model.workloads.train import Train
from pybench.worker.backends.torch.train.lora_shape import lora_shape

# Phi 3 has several projections in one.
_FUSED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}


def add_adapters(model: nn.Module, settings: Train, dtype: torch.dtype) -> None:
    """Freeze the empty ``model`` and give its projections adapters in ``dtype``."""
    shape = lora_shape(settings)
    config = LoraConfig(
        r=shape.rank,
        lora_alpha=shape.alpha,
        target_modules=_names(model, shape.targets),
        lora_dropout=settings.lora_dropout or 0.0,
        bias="none",
    )
    inject_adapter_in_model(config, model)
    for name, module in model.named_modules():
        if name.endswith((".lora_A", ".lora_B")):
            module.to(dtype)  # peft keeps adapters in float32, which a sharded layer can't mix with its weights


def _names(model: nn.Module, targets: Iterable[str]) -> list[str]:
    """The projections by the names that the model's modules have."""
    own = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    return list(dict.fromkeys(target if target in own else _FUSED.get(target, target) for target in targets))
