"""Operations of training, and what GPUs can do at most."""

from __future__ import annotations

import dataclasses

import pytest

from pybench.compute.peak_flops import PEAKS, peak_flops_per_s
from pybench.compute.train_flops import hardware_flops_per_token, model_flops_per_token
from pybench.model.workloads.train import Train

# Attention 4*4*4*4 = 192 weights a layer with 2 key-value heads, MLP 3*8*16 = 384, head 32*8 = 256.
SHAPE = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 32,
}
LAYERS, HEAD, ATTENTION = 2 * 2 * (192 + 384), 2 * 256, 4 * 2 * 8 * 10
FULL = Train(backend="torch", model="m", global_batch_size=1, sequence_tokens=10)


def test_palms_formula_by_hand() -> None:
    """6 N + 12 L H Q T."""
    assert model_flops_per_token(SHAPE, FULL) == 3 * (LAYERS + HEAD + ATTENTION)


def test_adapters_need_no_gradients_of_frozen_weights() -> None:
    """4 N + 12 L H Q T."""
    lora = dataclasses.replace(FULL, lora_rank=8)
    assert model_flops_per_token(SHAPE, lora) == 2 * (LAYERS + HEAD) + 3 * ATTENTION


def test_only_full_checkpointing_computes_products_again() -> None:
    """Layers once more, the head not."""
    needed = model_flops_per_token(SHAPE, FULL)
    again = dataclasses.replace(FULL, activation_checkpointing="full")
    assert hardware_flops_per_token(SHAPE, again) == needed + LAYERS + ATTENTION
    for kind in ("none", "selective"):
        assert hardware_flops_per_token(SHAPE, dataclasses.replace(FULL, activation_checkpointing=kind)) == needed


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H200", 989.5),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA GeForce RTX 4090", 165.2),
    ],
)
def test_peaks_by_name(name: str, tera: float) -> None:
    """As the driver names them."""
    assert peak_flops_per_s(name, "bfloat16") == tera * 1e12
    assert peak_flops_per_s(name, "float16") == tera * 1e12


@pytest.mark.parametrize(("name", "dtype"), [("NVIDIA H200", "float32"), ("AVX512", "bfloat16"), ("", "bfloat16")])
def test_unknown_peaks_are_none(name: str, dtype: str) -> None:
    """No guess for another type or device."""
    assert peak_flops_per_s(name, dtype) is None


def test_a_variant_stands_before_its_family() -> None:
    """Else its row would never apply."""
    for position, row in enumerate(PEAKS):
        assert not any(set(earlier.words) <= set(row.words) for earlier in PEAKS[:position])
        assert row.source
