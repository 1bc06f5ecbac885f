"""What a turn needs of the host's memory, against what the host has."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.core.memory.fit import memory_reason
from pybench.core.memory.turn_host import pinned_bytes, turn_host_bytes
from pybench.files.model_shapes import load_models
from pybench.model.devices import Devices
from pybench.model.effort import Effort
from pybench.model.suite import Point
from pybench.model.workloads.turn import Turn
from tests.builders import with_settings

MODEL = "llama-3.1-8b"
_MIB = 2**20
# Of Llama-3.1-8B in 16 bits, each matrix in a block of the next power of two: projections of 32, 32, 8 and 8 MiB, three
# of 112 in 128, embedding and head of 1002 in 1024.
WHOLE = ((32 + 32 + 8 + 8 + 3 * 128) * 32 + 2 * 1024) * _MIB
# vLLM joins 48 of them in 64, and 224 in 256.
JOINED = ((64 + 32 + 256 + 128) * 32 + 2 * 1024) * _MIB
RATES = 256 * _MIB
# Of vLLM and of batches, whatever sleeps.
BUFFERS = 128 * _MIB
FILE = 2 * 8.03e9
SIZES = {"batch_size": 8, "prompt_tokens": 64, "output_tokens": 64}
FULL = {"topology": "full", "tensor_parallel": 2, "sleep_level": 2}


def turn(**options: Any) -> Point:
    usual: dict[str, Any] = {
        **SIZES,
        "backend": "vllm",
        "topology": "shared",
        "activation_checkpointing": "full",
        "handover": "file",
    }
    settings = Turn(model=MODEL, **{**usual, **options})
    return Point(id="p", benchmark="b", axes={}, settings=settings, effort=Effort(), architecture=load_models()[MODEL])


def host_reason(point: Point, memory_bytes: float | None) -> str | None:
    """On GPUs that are large enough for anything."""
    return memory_reason(point, Devices("cuda", 8, memory_bytes=1e12, host_memory_bytes=memory_bytes))


def pinned(**options: Any) -> float:
    point = turn(**options)
    assert isinstance(point.settings, Turn)
    assert point.shape is not None
    return pinned_bytes(point.settings, point.shape)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, JOINED + 3 * WHOLE + RATES),
        ({"backend": "torch"}, WHOLE + 3 * WHOLE + RATES),
        ({"sleep_level": 2}, 3 * WHOLE + RATES),
        ({"sleep_level": 0}, RATES),
        ({"lora_rank": 8}, JOINED + WHOLE + RATES),
        ({**FULL, "strategy": "fsdp"}, 3 * WHOLE + 2 * RATES),
        (
            {**FULL, "strategy": "context_parallel", "train_context_parallel": 2},
            2 * (3 * WHOLE + RATES),
        ),
        (
            {**FULL, "strategy": "tensor_parallel", "train_tensor_parallel": 2},
            3 * (WHOLE + 1024 * _MIB) + 2 * RATES,
        ),
    ],
)
def test_blocks_by_hand(options: dict[str, Any], expected: float) -> None:
    """A weight and two states of the trainer's; with sequences split all of them on both ranks."""
    assert pinned(**options) == expected + BUFFERS


def test_activations_that_are_offloaded_are_pinned() -> None:
    """Of one pass of each trainer: 8 sequences of 128 tokens, 2 bytes of 4096 inputs of each of 32 layers."""
    inputs = 128 * 32 * 2 * 4096
    for options, num_tokens in (({}, 1), ({"batch_size_per_gpu": 8}, 8), ({**FULL, "strategy": "fsdp"}, 2)):
        beside = pinned(**options, activation_offload=True) - pinned(**options)
        assert beside == num_tokens * inputs


def test_four_bits_leave_layers_a_quarter() -> None:
    """All but embedding and head, whose bits stay."""
    packed = (WHOLE - 2048 * _MIB) / 4 + 2048 * _MIB
    assert pinned(lora_rank=8, weights="nf4") == JOINED + packed + RATES + BUFFERS


def test_small_matrices_share_segments() -> None:
    """Of 4 ranks of an engine: 12 and 8 MiB; of the latter 32 lie in 13 segments of 20 MiB, each pinned as 32."""
    joined = ((16 + 13 + 64 + 32) * 32 + 2 * 256) * 4 * _MIB
    found = pinned(topology="decoupled", tensor_parallel=4, lora_rank=8)
    assert found == pytest.approx(joined + WHOLE + RATES + BUFFERS, rel=1e-12)


def test_a_file_needs_its_size_twice() -> None:
    """Of all weights: itself and what it is written from. Adapters are small."""
    whole, adapters = turn(), turn(lora_rank=8)
    assert isinstance(whole.settings, Turn)
    assert isinstance(adapters.settings, Turn)
    assert whole.shape is not None
    assert turn_host_bytes(whole.settings, whole.shape) - pinned() == pytest.approx(2 * FILE, rel=0.001)
    assert turn_host_bytes(adapters.settings, whole.shape) == pinned(lora_rank=8)


# Of what vLLM's engine pins while it sleeps: 32 blocks of 32 and of 128 MiB, two of 1024.
LEFT = ((32 + 128) * 32 + 2 * 1024) * _MIB


@pytest.mark.parametrize(
    ("options", "beside"),
    [
        ({}, WHOLE - LEFT),
        ({"sleep_level": 0}, WHOLE),
        ({"backend": "torch"}, 0),
        ({"lora_rank": 8}, 0),
    ],
)
def test_a_worker_reads_ahead_into_blocks_that_the_engines_sleep_has_left(options: dict[str, Any], beside: int) -> None:
    """Torch's engine reads to its GPU."""
    assert pinned(async_weight_syncing=True, **options) - pinned(**options) == beside


def test_each_of_two_workers_reads_all_weights() -> None:
    """Their engine's joined matrices are halves: 64 blocks each of 32, 16, 128 and 64 MiB, and four of 512."""
    whole = {**FULL, "sleep_level": 1, "strategy": "fsdp"}
    left = (32 + 128) * 64 * _MIB  # of 128 and 384 that are read, whole embeddings fit in none
    assert pinned(async_weight_syncing=True, **whole) - pinned(**whole) == 2 * WHOLE - left


def test_what_is_read_ahead_takes_the_place_of_the_first_copy_beside_the_file() -> None:
    """It is less here, so that a turn needs no more than without."""
    ahead, apart = turn(async_weight_syncing=True), turn()
    assert isinstance(ahead.settings, Turn)
    assert isinstance(apart.settings, Turn)
    assert ahead.shape is not None
    assert turn_host_bytes(ahead.settings, ahead.shape) == turn_host_bytes(apart.settings, ahead.shape)


def test_reading_ahead_is_named_where_it_is_too_much() -> None:
    """Four workers pin 53.9 GiB more for it; the file takes 15, and without it the copy as much."""
    ahead = turn(async_weight_syncing=True, topology="full", tensor_parallel=4, strategy="fsdp")
    reason = str(host_reason(ahead, 110e9))
    assert reason.endswith("of 102 GiB: fits with async_weight_syncing = false or a smaller model")
    assert host_reason(with_settings(ahead, async_weight_syncing=False), 110e9) is None


def test_a_host_with_too_little_is_named_with_what_fits() -> None:
    """66.9 GiB pinned, of them 17 by the engine asleep, and 29.9 by the file; a tenth more may fit."""
    reason = str(host_reason(turn(), 90e9))
    assert reason == (
        "needs about 96.8 GiB of host memory for what leaves the GPUs, of 83.8 GiB: "
        "fits with sleep_level = 2 or handover = 'direct' or a smaller model"
    )
    assert host_reason(turn(), 100e9) is None
    assert host_reason(turn(sleep_level=2), 90e9) is None
    assert host_reason(turn(handover="direct"), 90e9) is None
    assert host_reason(turn(), None) is None


def test_a_change_that_the_rules_refuse_is_not_named() -> None:
    """Level 2 would lose the weights under adapters; four bits leave the trainer less."""
    reason = str(host_reason(turn(lora_rank=8), 25e9))
    assert reason.endswith("of 23.3 GiB: fits with weights = 'nf4' or a smaller model")
    smaller = with_settings(turn(lora_rank=8), weights="nf4")
    assert host_reason(smaller, 25e9) is None
    assert str(host_reason(smaller, 15e9)).endswith("of 14 GiB: fits with a smaller model")


def test_where_nothing_sleeps_nothing_is_refused() -> None:
    """A small host beside large GPUs."""
    awake = turn(sleep_level=0, handover="direct")
    assert host_reason(awake, 4e9) is None
    assert host_reason(with_settings(awake, sleep_level=1), 4e9) is not None
