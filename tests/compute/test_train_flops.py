"""Operations of training, and what GPUs can do at most."""

from __future__ import annotations

import dataclasses

from pybench.compute.train_flops import hardware_flops_per_token, model_flops_per_token
from pybench.model.workloads.train import Train
from tests.builders import DECODER

# Attention 4*4*4*4 = 192 weights a layer with 2 key-value heads, MLP 3*8*16 = 384, head 32*8 = 256.
LAYERS, HEAD, ATTENTION = 2 * 2 * (192 + 384), 2 * 256, 4 * 2 * 8 * 10
FULL = Train(backend="torch", model="m", global_batch_size=1, sequence_tokens=10)


def test_palms_formula_by_hand() -> None:
    """6 N + 12 L H Q T."""
    assert model_flops_per_token(DECODER, FULL) == 3 * (LAYERS + HEAD + ATTENTION)


def test_adapters_need_no_gradients_of_frozen_weights() -> None:
    """4 N + 12 L H Q T."""
    lora = dataclasses.replace(FULL, lora_rank=8)
    assert model_flops_per_token(DECODER, lora) == 2 * (LAYERS + HEAD) + 3 * ATTENTION


def test_only_full_checkpointing_computes_products_again() -> None:
    """Layers once more, the head not."""
    needed = model_flops_per_token(DECODER, FULL)
    again = dataclasses.replace(FULL, activation_checkpointing="full")
    assert hardware_flops_per_token(DECODER, again) == needed + LAYERS + ATTENTION
    for kind in ("none", "selective"):
        assert hardware_flops_per_token(DECODER, dataclasses.replace(FULL, activation_checkpointing=kind)) == needed
