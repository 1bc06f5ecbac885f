"""ZeRO's stages 1 and 2 by hand, on a node that moves 1 byte in a second."""

from __future__ import annotations

import dataclasses

import pytest

from pybench.explain.comm_model.alpha_beta import AlphaBeta
from pybench.explain.comm_model.figures import NodeFigures, UnmeasuredError
from pybench.explain.comm_model.training import training_step
from pybench.explain.comm_model.training_shape import TrainingShape
from pybench.explain.comm_model.zero import exchange_s, moved_bytes
from tests.builders import DECODER

_PARAMETERS = 2 * (192 + 384) + 2 * 32 * 8  # as tests/core/test_flops.py counts them
_NODE = NodeFigures(
    matmul_flops_per_s=1.0,
    memory_bytes_per_s=1.0,
    collectives={("all_reduce", 2): AlphaBeta(100.0, 1.0), ("all_gather", 2): AlphaBeta(10.0, 1.0)},
)
_ZERO = TrainingShape(samples=1, sequence_tokens=4, element_bytes=2, sharing="zero", data_parallel=2)


def test_a_rank_moves_all_gradients_and_updates_its_share() -> None:
    """Two copies of 4 bytes, and of the share 80 of the gradient's way to float32, 80 of AdamW, 6 of the new weight."""
    assert moved_bytes(100, 1) == 100 * (8 + 80 + 80 + 6)
    assert moved_bytes(100, 4) == 100 * 8 + 25 * 166


def test_gradients_are_reduced_in_buckets_and_weights_gathered() -> None:
    """Of 1.2e9 parameters in 16 bits: 2.4 buckets of 5e8, each with a latency of 100 s; less than one is one."""
    assert exchange_s(_NODE, 1.2e9, 2, 2) == pytest.approx(2.4 * 100 + 2.4e9 + 10 + 2.4e9)
    assert exchange_s(_NODE, 50, 2, 2) == 100 + 100 + 10 + 100
    assert exchange_s(_NODE, 50, 2, 1) == 0.0
    with pytest.raises(UnmeasuredError, match="all_reduce on 4 GPUs"):
        exchange_s(_NODE, 50, 2, 4)


def test_a_step_hides_nothing_of_it() -> None:
    """However long backward is; ranks compute as DDP's do, and clipping is free."""
    found = training_step(_NODE, DECODER, _ZERO)
    assert found.communication_s == 100 + 10 + 2 * 2 * _PARAMETERS
    assert found.memory_s == moved_bytes(_PARAMETERS, 2) + 36 * 4 * 32
    assert found.compute_s == training_step(_NODE, DECODER, dataclasses.replace(_ZERO, sharing="ddp")).compute_s
    assert training_step(_NODE, DECODER, dataclasses.replace(_ZERO, clip=True)) == found


def test_adapters_alone_are_exchanged_and_updated() -> None:
    """Frozen weights are none of ZeRO's."""
    found = training_step(_NODE, DECODER, dataclasses.replace(_ZERO, adapters=10))
    assert found.communication_s == 100 + 10 + 2 * 2 * 10
    assert found.memory_s == 10 * (8 + 166 / 2) + 36 * 4 * 32
