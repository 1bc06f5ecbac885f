"""Parameters, FLOPs and size classes of model shapes."""

from __future__ import annotations

import dataclasses

import pytest

from pybench.core.flops import (
    MODEL_CLASSES,
    decode_round_bytes,
    generate_flops,
    model_class,
    num_parameters,
    read_weights,
)
from pybench.files.shipped import load_models
from pybench.model.decoder_shape import DecoderShape, forward_flops_per_token
from tests.builders import DECODER


def test_parameters_by_hand() -> None:
    """Attention 8*(4+2+2+4)*2 = 192, MLP 3*8*16 = 384, two layers; embedding and head 2*32*8."""
    assert num_parameters(DECODER) == 2 * (192 + 384) + 512


def test_tied_embeddings_count_once() -> None:
    """The output head is the embedding."""
    assert num_parameters(dataclasses.replace(DECODER, tied_embeddings=True)) == 2 * (192 + 384) + 256


def test_head_width_of_its_own() -> None:
    """``head_dim`` 4 instead of 8 / 4 doubles attention's weights."""
    assert num_parameters(dataclasses.replace(DECODER, head_width=4)) == 2 * (384 + 384) + 512


def test_flops_by_hand() -> None:
    """2 for each weight outside the embedding, plus 4 * 2 layers * 8 wide * 10 tokens of context."""
    assert forward_flops_per_token(DECODER, 10) == 2 * (2 * (192 + 384) + 256) + 640


def test_a_mixture_holds_all_experts_and_computes_few() -> None:
    """Four experts, one active: parameters grow, FLOPs do not."""
    mixture = dataclasses.replace(DECODER, num_experts=4, active_experts=1)
    assert num_parameters(mixture) == 2 * (192 + 4 * 384) + 512
    assert forward_flops_per_token(mixture, 10) == forward_flops_per_token(DECODER, 10)


@pytest.mark.parametrize(
    ("model", "published", "size_class"),
    [
        ("llama-3.1-8b", 8.03e9, "8b"),
        ("llama-3.1-70b", 70.6e9, "70b"),
        ("qwen2.5-7b", 7.61e9, "8b"),
        ("qwen3-32b", 32.8e9, "30b"),
        ("gemma-3-27b", 27.0e9, "30b"),
        ("gemma-2b", 2.51e9, "3b"),
        ("gemma-7b", 8.54e9, "8b"),
        ("gemma-2-2b", 2.61e9, "3b"),
        ("gemma-2-9b", 9.24e9, "8b"),
        ("gemma-2-27b", 27.2e9, "30b"),
        ("phi-3-mini", 3.82e9, "3b"),
        ("phi-4", 14.7e9, "20b"),
        ("llama-3.3-70b", 70.6e9, "70b"),
        ("qwen2-7b", 7.61e9, "8b"),
        ("gpt-oss-20b", 20.9e9, "20b"),
    ],
)
def test_published_parameter_counts(model: str, published: float, size_class: str) -> None:
    """Within 1 % of each model's card."""
    shape = DecoderShape.from_config(load_models()[model])
    assert num_parameters(shape) == pytest.approx(published, rel=0.01)
    assert model_class(shape) == size_class


def test_classes_from_end_to_end() -> None:
    """A toy is tiny, a trillion parameters are beyond the last limit; both are classes that a table may name."""
    assert model_class(DECODER) == "tiny"
    assert model_class(dataclasses.replace(DECODER, hidden=32768, intermediate=10**6, layers=20)) == "giant"
    assert MODEL_CLASSES[0] == "tiny"
    assert MODEL_CLASSES[-1] == "giant"


_GPT_OSS = DecoderShape.from_config(load_models()["gpt-oss-20b"])


def test_a_mixture_with_windows_by_hand() -> None:
    """gpt-oss-20b at 8,192 tokens: 24 layers, 4 of 32 experts, every other layer attends to 128 tokens.

    A layer's weights: 2880 * 2 * (64 + 8) * 64 = 26,542,080 of attention, 3 * 2880**2 = 24,883,200 of an expert. Head:
    201,088 * 2880. Attention: 4 * 64 heads * 64 wide, times 12 * 8,192 + 12 * 128 tokens. All layers with the whole
    context would be 18 % more.
    """
    layers = 2 * 24 * (26_542_080 + 4 * 24_883_200)
    head = 2 * 201_088 * 2880
    attention = 4 * 64 * 64 * (12 * 8192 + 12 * 128)
    found = forward_flops_per_token(_GPT_OSS, 8192)
    assert found == layers + head + attention
    whole = forward_flops_per_token(dataclasses.replace(_GPT_OSS, sliding_layers=0), 8192)
    assert whole / found == pytest.approx(1.18, abs=0.005)


@pytest.mark.parametrize(
    ("model", "layer", "num_layers", "head", "attention"),
    [
        # Attention 3584 * 2 * (16 + 8) * 256, MLP 3 * 3584 * 14336; of 42 layers 21 see 4,096 tokens.
        ("gemma-2-9b", 44_040_192 + 154_140_672, 42, 256_000 * 3584, 4 * 16 * 256 * 21 * (8192 + 4096)),
        # 2048 * 2 * (8 + 1) * 256 and 3 * 2048 * 16384.
        ("gemma-2b", 9_437_184 + 100_663_296, 18, 256_000 * 2048, 4 * 8 * 256 * 18 * 8192),
        # 5120 * 2 * (40 + 10) * 128 and 3 * 5120 * 17920: fused projections are as many weights.
        ("phi-4", 65_536_000 + 275_251_200, 40, 100_352 * 5120, 4 * 40 * 128 * 40 * 8192),
    ],
)
def test_other_families_by_hand(model: str, layer: int, num_layers: int, head: int, attention: int) -> None:
    """At 8,192 tokens: 2 for each weight of the layers and the head, attention's own over what its layers see."""
    shape = DecoderShape.from_config(load_models()[model])
    assert forward_flops_per_token(shape, 8192) == 2 * (num_layers * layer + head) + attention


@pytest.mark.parametrize(
    ("model", "layers", "window"),
    [
        ("gpt-oss-20b", 12, 128),
        ("gemma-2-9b", 21, 4096),  # every second of 42 layers
        ("gemma-7b", 0, None),
        ("phi-3-mini", 32, 2047),
        ("phi-4", 0, None),
        ("gemma-3-27b", 52, 1024),  # of 62 layers each sixth sees everything: 10 do
        ("qwen2.5-7b", 0, None),  # use_sliding_window = false
        ("llama-3.1-8b", 0, None),
    ],
)
def test_which_layers_have_a_window(model: str, layers: int, window: int | None) -> None:
    """By each family's config."""
    shape = DecoderShape.from_config(load_models()[model])
    assert (shape.sliding_layers, shape.window_tokens) == (layers, window)


def test_attended_tokens_by_hand() -> None:
    """Two layers, one with a window of 4: positions 0 to 10 have means of 5 and (8 + 24) / 10."""
    shape = dataclasses.replace(DECODER, sliding_layers=1, window_tokens=4)
    assert shape.attended_tokens(3) == 3 + 3
    assert shape.attended_tokens(10) == 10 + 4
    assert shape.attended_tokens(0, 10) == pytest.approx(5 + 3.2)
    assert shape.attended_tokens(6, 10) == 8 + 4


def test_generation_by_hand() -> None:
    """Tokens 1 to 3 attend to 1, 2, 3; the second output to 4: only it and the last prompt token pass the head."""
    layers, head, width = 2 * 2 * (192 + 384), 2 * 256, 4 * 2 * 8
    assert generate_flops(DECODER, 3, 2) == 3 * layers + head + width * (1 + 2 + 3) + layers + head + width * 4


def test_a_decode_round_reads_what_windows_leave_of_the_cache() -> None:
    """Weights but the embedding; 2 sequences with 2 * 2 heads * 2 wide in a layer, over 10 and at most 4 tokens."""
    weights = 2 * (192 + 384) + 256
    bytes_ = {"weight_bytes": 1, "head_bytes": 1, "cache_bytes": 2}
    assert decode_round_bytes(DECODER, 2, 10, **bytes_) == weights + 2 * 8 * 2 * (10 + 10)
    windowed = dataclasses.replace(DECODER, sliding_layers=1, window_tokens=4)
    assert decode_round_bytes(windowed, 2, 10, **bytes_) == weights + 2 * 8 * 2 * (10 + 4)
    head = DECODER.embedding_weights
    assert decode_round_bytes(DECODER, 2, 10, **bytes_ | {"head_bytes": 3}) == weights + 2 * head + 2 * 8 * 2 * 20


@pytest.mark.parametrize(("tokens", "experts"), [(1, 4), (2, 4 + 4 * 28 / 32), (10_000, 32)])
def test_tokens_of_a_mixture_read_the_experts_that_any_of_them_chooses(tokens: float, experts: float) -> None:
    """Four of 32 the first; the second's are among those by an eighth; many choose all."""
    ends, attention, expert = 201088 * 2880, 2880 * 2 * (64 + 8) * 64, 3 * 2880 * 2880
    assert read_weights(_GPT_OSS, tokens) == pytest.approx(ends + 24 * (attention + expert * experts), rel=1e-12)


def test_without_experts_every_round_reads_the_same() -> None:
    """One sequence reads the same weights as a thousand."""
    assert read_weights(DECODER, 1) == read_weights(DECODER, 1000) == 2 * (192 + 384) + 256
