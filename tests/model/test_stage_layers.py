"""Layers of stages: by the work of each, where the last has the head, and evenly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pybench.files.shipped import load_models
from pybench.model.decoder_shape import DecoderShape, step_flops_per_token
from pybench.model.workloads.stage_layers import even_layers, rank_bytes, rank_layers, rank_weights, stage_layers
from pybench.model.workloads.train import Train
from tests.builders import DECODER

LLAMA = DecoderShape.from_config(load_models()["llama-3.1-8b"])


def staged(ranks: int, **options: Any) -> Train:
    """Eight samples of 2048 tokens by a pipeline, all layers recomputed."""
    usual: dict[str, Any] = {"strategy": "pipeline_parallel", "global_batch_size": 8, "sequence_tokens": 2048}
    return Train(
        backend="torch",
        model="llama-3.1-8b",
        pipeline_parallel=ranks,
        **{**usual, "activation_checkpointing": "full", **options},
    )


@pytest.mark.parametrize(
    ("ranks", "layers"), [(1, (32,)), (2, (17, 15)), (4, (9, 9, 9, 5)), (8, (2, 4, 5, 5, 5, 5, 5, 1))]
)
def test_the_head_is_nearly_two_layers(ranks: int, layers: tuple[int, ...]) -> None:
    """Where more than one cut has the same slowest stage, the last, with head and logits, has fewest layers.

    Of eight stages the first, too, has few: it has the embedding, and most microbatches in flight.
    """
    assert stage_layers(staged(ranks), LLAMA) == layers


@pytest.mark.parametrize(
    ("recompute", "tokens", "layers"), [("none", 2048, (9, 9, 9, 5)), ("full", 131_072, (8, 8, 8, 8))]
)
def test_long_sequences_make_the_head_small(recompute: str, tokens: int, layers: tuple[int, ...]) -> None:
    """Attention over these tokens is four times the work of a layer's products."""
    assert stage_layers(staged(4, activation_checkpointing=recompute, sequence_tokens=tokens), LLAMA) == layers


def test_interleaved_stages_share_the_work_of_their_rank() -> None:
    """Of 16 samples: 9, 9, 9 and 5 layers again; the last rank's 5 are 3 and 2, with the head behind the 2."""
    settings = staged(4, schedule="interleaved_1f1b", stages_per_rank=2, global_batch_size=16)
    layers = stage_layers(settings, LLAMA)
    assert layers == (5, 5, 5, 3, 4, 4, 4, 2)
    assert rank_layers(layers, 4) == (9, 9, 9, 5)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_naive_split_is_even(ranks: int) -> None:
    """As ``device_map`` makes it."""
    assert stage_layers(staged(ranks, strategy="layer_split"), LLAMA) == even_layers(32, ranks)
    assert even_layers(5, 3) == (1, 2, 2)


def _cuts(layers: int, ranks: int) -> Iterator[tuple[int, ...]]:
    if ranks == 1:
        yield (layers,)
        return
    for first in range(1, layers - ranks + 2):
        yield from ((first, *rest) for rest in _cuts(layers - first, ranks - 1))


@pytest.mark.parametrize("vocabulary", [0, 64, 500, 5000])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("layers", [4, 5, 9, 14])
def test_no_cut_is_better(layers: int, ranks: int, schedule: str, vocabulary: int) -> None:
    """No cut has a faster slowest stage, and no equally fast cut needs less memory on its fullest rank."""
    shape = replace(DECODER, layers=layers, vocabulary=vocabulary)
    settings = staged(ranks, schedule=schedule, sequence_tokens=16)
    layer, head = step_flops_per_token(shape, 0, 16, recompute=True, adapters=False)

    def cost(cut: tuple[int, ...]) -> tuple[float, float]:
        *others, last = (layer * count for count in cut)
        return round(max(*others, last + head), 3), max(rank_bytes(settings, shape, cut))

    found = stage_layers(settings, shape)
    assert sum(found) == layers
    assert cost(found) == min(map(cost, _cuts(layers, ranks)))


def test_every_stage_has_a_layer() -> None:
    """Also beside a head that alone takes longest. Fewer layers than stages, which plans refuse, are cut evenly."""
    head = replace(DECODER, layers=4, vocabulary=100_000)
    assert stage_layers(staged(4), head) == (1, 1, 1, 1)
    turned = staged(2, schedule="interleaved_1f1b", stages_per_rank=2)
    assert stage_layers(turned, replace(head, layers=6)) == (2, 1, 2, 1)
    assert stage_layers(staged(4), replace(head, layers=2)) == even_layers(2, 4)


def test_weights_of_ranks_are_those_of_the_model() -> None:
    """The embedding is the first's, the head the last's; a lone rank has both, or the one that they are."""
    layer = 192 + 384
    assert rank_weights(DECODER, (1, 3, 2)) == (layer + 256, 3 * layer, 2 * layer + 256)
    assert rank_weights(DECODER, (2,)) == (2 * layer + 512,)
    assert rank_weights(replace(DECODER, tied_embeddings=True), (2,)) == (2 * layer + 256,)


def test_memory_of_a_first_stage_by_hand() -> None:
    """Four numbers of 2 bytes for each weight, and three more microbatches of layers' inputs than have passed."""
    first, *middle, last = rank_bytes(staged(4), LLAMA, (9, 9, 9, 5))
    layer, embedding, token = 218_103_808, 525_336_576, 2 * 4096
    assert first == 8 * (9 * layer + embedding) + 3 * 2048 * 9 * token
    assert middle == [8 * 9 * layer + ahead * 2048 * 9 * token for ahead in (2, 1)]
    assert last == 8 * (5 * layer + embedding) + 2 * 2 * 8 * 2048 * 128_256


def test_interleaved_stages_have_more_in_flight() -> None:
    """By torch's order: the first of four ranks is (2 - 1) 4 + 2 * 3 passes of a stage ahead; two count as one."""
    settings = staged(4, schedule="interleaved_1f1b", stages_per_rank=2, global_batch_size=16)
    even = rank_bytes(settings, LLAMA, (8, 8, 8, 8))
    inputs = 2048 * 8 * 2 * 4096
    assert even[1] == 8 * 8 * 218_103_808 + (4 + 2 * 2) / 2 * inputs
    assert even[0] == 8 * (8 * 218_103_808 + 525_336_576) + (4 + 2 * 3) / 2 * inputs
