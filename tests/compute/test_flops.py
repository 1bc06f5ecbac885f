"""Parameters, FLOPs and size classes of model shapes."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.compute.flops import MODEL_CLASSES, forward_flops_per_token, model_class, num_parameters
from pybench.store.models import load_models

_TINY: dict[str, Any] = {
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 32,
}


def test_parameters_by_hand() -> None:
    """Attention 8*(4+2+2+4)*2 = 192, MLP 3*8*16 = 384, two layers; embedding and head 2*32*8."""
    assert num_parameters(_TINY) == 2 * (192 + 384) + 512


def test_tied_embeddings_count_once() -> None:
    """The output head is the embedding."""
    assert num_parameters({**_TINY, "tie_word_embeddings": True}) == 2 * (192 + 384) + 256


def test_head_width_of_its_own() -> None:
    """``head_dim`` 4 instead of 8 / 4 doubles attention's weights."""
    assert num_parameters({**_TINY, "head_dim": 4}) == 2 * (384 + 384) + 512


def test_flops_by_hand() -> None:
    """2 for each weight outside the embedding, plus 4 * 2 layers * 8 wide * 10 tokens of context."""
    assert forward_flops_per_token(_TINY, 10) == 2 * (2 * (192 + 384) + 256) + 640


def test_a_mixture_holds_all_experts_and_computes_few() -> None:
    """Four experts, one active: parameters grow, FLOPs do not."""
    mixture = {**_TINY, "num_local_experts": 4, "num_experts_per_tok": 1}
    assert num_parameters(mixture) == 2 * (192 + 4 * 384) + 512
    assert forward_flops_per_token(mixture, 10) == forward_flops_per_token(_TINY, 10)


@pytest.mark.parametrize(
    ("model", "published", "size_class"),
    [
        ("llama-3.1-8b", 8.03e9, "8b"),
        ("llama-3.1-70b", 70.6e9, "70b"),
        ("qwen2.5-7b", 7.61e9, "8b"),
        ("qwen3-32b", 32.8e9, "30b"),
        ("gemma-3-27b", 27.0e9, "30b"),
        ("gpt-oss-20b", 20.9e9, "20b"),
    ],
)
def test_published_parameter_counts(model: str, published: float, size_class: str) -> None:
    """Within 1 % of what each model's card says."""
    architecture = load_models()[model]
    assert num_parameters(architecture) == pytest.approx(published, rel=0.01)
    assert model_class(architecture) == size_class


def test_classes_from_end_to_end() -> None:
    """A toy is tiny, a trillion parameters are beyond the last limit; both are classes that a table may name."""
    assert model_class(_TINY) == "tiny"
    assert model_class({**_TINY, "hidden_size": 32768, "intermediate_size": 10**6, "num_hidden_layers": 20}) == "giant"
    assert MODEL_CLASSES[0] == "tiny"
    assert MODEL_CLASSES[-1] == "giant"
