"""Low-rank adapters (LoRA, arXiv:2106.09685) by peft."""

from __future__ import annotations

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from pybench.model.workloads.train import Train
from pybench.worker.backends.torch.train.lora_shape import lora_shape


def add_adapters(model: nn.Module, settings: Train, dtype: torch.dtype) -> None:
    """Freeze the empty ``model`` and give its projections adapters in ``dtype``."""
    shape = lora_shape(settings)
    config = LoraConfig(
        r=shape.rank,
        lora_alpha=shape.alpha,
        target_modules=list(shape.targets),
        lora_dropout=settings.lora_dropout or 0.0,
        bias="none",
    )
    inject_adapter_in_model(config, model)
    for name, module in model.named_modules():
        if name.endswith((".lora_A", ".lora_B")):
            module.to(dtype)  # peft keeps adapters in float32, which a sharded layer can't mix with its weights
