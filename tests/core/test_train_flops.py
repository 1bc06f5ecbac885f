"""Operations of training, and what GPUs can do at most."""

from __future__ import annotations

import dataclasses

from pybench.core.flops import hardware_flops_per_token, model_flops_per_token
from pybench.files.shipped import load_models
from pybench.model.decoder_shape import DecoderShape
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


def test_a_loss_in_chunks_computes_the_head_again() -> None:
    """Independent of the layers."""
    chunks = dataclasses.replace(FULL, loss_chunk_tokens=64)
    assert model_flops_per_token(DECODER, chunks) == model_flops_per_token(DECODER, FULL)
    for kind in ("none", "full"):
        layers, both = (dataclasses.replace(each, activation_checkpointing=kind) for each in (FULL, chunks))
        assert hardware_flops_per_token(DECODER, both) == hardware_flops_per_token(DECODER, layers) + HEAD


def test_a_mixture_trains_its_active_experts_over_what_its_windows_leave() -> None:
    """gpt-oss-20b under LoRA at 2,048 tokens: 4 N + 12 H Q tokens, of 3.605 of its 20.9 billion weights.

    N = 24 layers * (26,542,080 of attention + 4 experts of 24,883,200) + a head of 201,088 * 2,880. Half of the layers
    attend to 2,048 tokens, half to 128.
    """
    shape = DecoderShape.from_config(load_models()["gpt-oss-20b"])
    lora = Train(backend="torch", model="gpt-oss-20b", global_batch_size=1, sequence_tokens=2048, lora_rank=8)
    active = 24 * (26_542_080 + 4 * 24_883_200) + 201_088 * 2_880
    assert active == 3_604_930_560
    assert model_flops_per_token(shape, lora) == 4 * active + 12 * 64 * 64 * (12 * 2048 + 12 * 128)
