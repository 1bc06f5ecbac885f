"""Low-rank adapters (LoRA, arXiv:2106.09685) by peft."""

from __future__ import annotations

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from pybench.model.workloads.train import Train

TARGETS: dict[str, tuple[str, ...]] = {
    "query_value": ("q_proj", "v_proj"),
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "all_linear": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
}


def add_adapters(model: nn.Module, settings: Train, dtype: torch.dtype) -> None:
    """Freeze the empty ``model`` and give its projections adapters in ``dtype``; without dropout."""
    rank = settings.lora_rank
    assert rank is not None
    config = LoraConfig(
        r=rank,
        lora_alpha=settings.lora_alpha or 2 * rank,
        target_modules=list(TARGETS[settings.lora_targets or "query_value"]),
        lora_dropout=0.0,
        bias="none",
    )
    inject_adapter_in_model(config, model)
    for name, module in model.named_modules():
        if name.endswith((".lora_A", ".lora_B")):
            module.to(dtype)  # peft keeps adapters in float32, which a sharded layer can't mix with its weights
