"""The model against kept measurements: generation and training on 1, 2 and 4 H200s.

Figures of the node: the rows of the shipped tables that were measured on such a machine, or the kept run of node_check.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pybench.explain.comm_model.alpha_beta import fit
from pybench.explain.comm_model.figures import NodeFigures
from pybench.explain.comm_model.generation import generation_phases
from pybench.explain.comm_model.scale_out import predict
from pybench.explain.comm_model.step_time import Baseline, BaselinePhase, attribute
from pybench.explain.comm_model.training import training_step
from pybench.explain.comm_model.training_shape import TrainingShape
from pybench.files.expected.file import read_table
from pybench.files.shipped import shipped_suites
from pybench.model.expected import FigureRow
from tests.explain.comm_model.kept_runs import LLAMA, ONE, figures_of, generation_baseline, measured_of

_BUS_FACTOR = {2: 1.0, 4: 1.5}
# One direction of NVLink 4 between two GPUs.
_LINK_BYTES_PER_S = 370e9


def _figures() -> NodeFigures:
    kernel = read_table(shipped_suites() / "expected/kernel.toml").rows
    collective = read_table(shipped_suites() / "expected/collective_busbw.toml").rows
    own = [row for row in kernel if isinstance(row, FigureRow) and row.machine == "h200"]
    curves: dict[int, list[tuple[float, float]]] = {2: [], 4: []}
    for row in collective:
        if isinstance(row, FigureRow) and row.machine == "h200" and row.kind == "measured":
            size = float(row.where["message_bytes"])
            curves[row.count].append((size, size * _BUS_FACTOR[row.count] / (row.value or 0)))
    return NodeFigures(
        matmul_flops_per_s=next(row.value or 0 for row in own if row.where.get("m") == 8192),
        memory_bytes_per_s=next(row.value or 0 for row in own if row.where.get("pattern") == "copy"),
        peer_bytes_per_s=_LINK_BYTES_PER_S,
        collectives={("all_reduce", count): fit(curve) for count, curve in curves.items()},
    )


def _checked() -> NodeFigures:
    return figures_of("node_check-h200x4-20261121")


_SOURCES = pytest.mark.parametrize("source", [_figures, _checked], ids=["tables", "node_check"])


def _measured(suite: str) -> dict[int, dict[str, float]]:
    return measured_of(f"{suite}-h200x4-20261121")


@_SOURCES
@pytest.mark.parametrize(
    ("suite", "first_token", "off"),
    [
        ("tp_scaling", "ttft_s", {2: (0.0, 0.02), 4: (0.0, 0.02)}),
        # Of NCCL's figures, while vLLM has kernels of its own for small messages: it gains more than predicted.
        ("tp_scaling_vllm", "ttft_p99_s", {2: (-0.02, 0.0), 4: (-0.035, -0.02)}),
    ],
)
@pytest.mark.parametrize("count", [2, 4])
def test_how_near_predictions_of_generation_come(
    suite: str,
    first_token: str,
    off: dict[int, tuple[float, float]],
    count: int,
    source: Callable[[], NodeFigures],
) -> None:
    """Predicted over measured speedup, less 1."""
    measured, figures = _measured(suite), source()
    one = ONE[suite]
    baseline = generation_baseline(generation_phases(figures, LLAMA, one), measured[1], first_token)
    predicted_s = baseline.calibrated_s(generation_phases(figures, LLAMA, replace(one, tensor_parallel=count)))
    low, high = off[count]
    assert low < measured[count]["step_s"] / predicted_s - 1 < high


@_SOURCES
@pytest.mark.parametrize(
    ("suite", "first_token", "prefill_off", "rounds_off"),
    [
        ("tp_scaling", "ttft_s", {2: (0.025, 0.04), 4: (0.05, 0.07)}, {2: (-0.005, 0.01), 4: (-0.015, 0.0)}),
        (
            "tp_scaling_vllm",
            "ttft_p99_s",
            {2: (0.01, 0.03), 4: (-0.01, 0.01)},
            {2: (-0.07, -0.05), 4: (-0.07, -0.05)},
        ),
    ],
)
@pytest.mark.parametrize("count", [2, 4])
def test_how_near_predictions_of_the_two_phases_come(
    suite: str,
    first_token: str,
    prefill_off: dict[int, tuple[float, float]],
    rounds_off: dict[int, tuple[float, float]],
    count: int,
    source: Callable[[], NodeFigures],
) -> None:
    """Predicted over measured speedup, less 1.

    Without norms prefill is 13 and 31 % above in plain PyTorch, 4 and 5 % in vLLM; at a node's full rates rounds are 3
    and 6 % below, 13 and 18 %.
    """
    measured, figures = _measured(suite), source()
    one = ONE[suite]
    baseline = generation_baseline(generation_phases(figures, LLAMA, one), measured[1], first_token)
    predicted = generation_phases(figures, LLAMA, replace(one, tensor_parallel=count))
    first_s, rounds_s = (Baseline((own,)).calibrated_s([phase]) for own, phase in baseline.paired(predicted))
    found_s = measured[count][first_token]
    assert prefill_off[count][0] < found_s / first_s - 1 < prefill_off[count][1]
    assert rounds_off[count][0] < (measured[count]["step_s"] - found_s) / rounds_s - 1 < rounds_off[count][1]


_DDP = TrainingShape(samples=2, sequence_tokens=2048, element_bytes=2, bucket_copies=1, recompute=True)
_ADAPTERS = TrainingShape(samples=4, sequence_tokens=1024, element_bytes=2, recompute=True, adapters=3_407_872)
_SHARDED = TrainingShape(samples=2, sequence_tokens=4096, element_bytes=2, sharing="fsdp", recompute=True)
_LAYERS = TrainingShape(samples=4, sequence_tokens=4096, element_bytes=2, recompute=True)
_BATCH = TrainingShape(samples=8, sequence_tokens=2048, element_bytes=2, recompute=True)
_STAGES = TrainingShape(samples=16, sequence_tokens=2048, element_bytes=2, microbatches=16, recompute=True)
_SCALED = {
    "ddp_scaling": (_DDP, "data_parallel"),
    "lora_scaling": (_ADAPTERS, "data_parallel"),
    "fsdp_scaling": (_SHARDED, "data_parallel"),
    "tensor_training_scaling": (_LAYERS, "tensor_parallel"),
    "pipeline_scaling": (_STAGES, "pipeline_parallel"),
}
"""Of a suite: a training on one GPU, and the degree that grows. Data parallel ranks each have as many samples."""


def _predicted_speedup(suite: str, figures: NodeFigures, joined: NodeFigures, count: int) -> float:
    """Of ``count`` GPUs of the figures ``joined`` over the one that was measured, by the figures of that one."""
    shape, degree = _SCALED[suite]
    base_s = _measured(suite)[1]["step_s"]
    base = training_step(figures, LLAMA, shape)
    baseline = Baseline((BaselinePhase(predicted=base, measured_s=base_s, beyond_shrinks=True),))
    grown: dict[str, Any] = {degree: count}
    step_s = baseline.calibrated_s([training_step(joined, LLAMA, replace(shape, **grown))])
    return (count if degree == "data_parallel" else 1) * base_s / step_s


@_SOURCES
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    ("suite", "off"),
    [
        # With DDP's copies of gradients, and collectives that slow down the products beside them; without 3 to 9 %.
        ("ddp_scaling", 0.04),
        ("lora_scaling", 0.04),
        ("fsdp_scaling", 0.04),
        # Its ranks gathered all logits; since 26 November 2026 they split them, which is predicted: 0.15 by then.
        ("tensor_training_scaling", 0.18),
        ("pipeline_scaling", 0.02),  # cut evenly; with the head's work divided by all stages 11 %
    ],
)
def test_how_near_predictions_of_training_come(
    suite: str, off: float, count: int, source: Callable[[], NodeFigures]
) -> None:
    """Tokens/s on so many GPUs over those on one."""
    measured, figures = _measured(suite), source()
    predicted = _predicted_speedup(suite, figures, figures, count)
    assert predicted == pytest.approx(measured[count]["tokens_per_s"] / measured[1]["tokens_per_s"], rel=off)


def _strategies(host: str) -> dict[str, float]:
    """Seconds of a step by strategy, without LoRA, of a kept run of train_strategies."""
    kept = json.loads((shipped_suites() / f"measured/train_strategies-{host}.json").read_text())
    return {
        point["axes"]["strategy"]: point["metrics"]["step_s"]["value"]
        for point in kept["points"]
        if point["status"] == "ok" and point["benchmark"] in {"copies", "stages"}
    }


def _chunks(host: str) -> float:
    """Seconds of a step of context parallelism, of a kept run of train_strategies."""
    kept = json.loads((shipped_suites() / f"measured/train_strategies-{host}.json").read_text())
    (found,) = (point for point in kept["points"] if point["benchmark"] == "split_sequence")
    return float(found["metrics"]["step_s"]["value"])


@_SOURCES
@pytest.mark.parametrize(
    ("strategy", "split", "off"),
    [
        ("ddp", replace(_BATCH, data_parallel=2, samples=4), 0.02),
        ("accelerate", replace(_BATCH, data_parallel=2, samples=4), 0.02),
        # Its step was no part of the fit of what is not hidden.
        ("fsdp", replace(_BATCH, sharing="fsdp", data_parallel=2, samples=4), 0.02),
        ("layer_split", replace(_BATCH, pipeline_parallel=2), 0.1),
        ("pipeline_parallel", replace(_BATCH, pipeline_parallel=2, microbatches=2), 0.1),
    ],
)
def test_how_near_predictions_of_one_batch_come(
    strategy: str, split: TrainingShape, off: float, source: Callable[[], NodeFigures]
) -> None:
    """Of one and two H200s on different hosts: 8 samples of 2048 tokens by layers in turn, or by halves at a time."""
    measured, shared = _strategies("h200x1-20261125")[strategy], _strategies("h200x2-20261122")[strategy]
    shapes = (replace(_BATCH, sharing=split.sharing), split)
    base, step = (training_step(source(), LLAMA, shape) for shape in shapes)
    baseline = Baseline((BaselinePhase(predicted=base, measured_s=measured, beyond_shrinks=True),))
    assert baseline.calibrated_s([step]) == pytest.approx(shared, rel=off)


@_SOURCES
def test_how_near_a_prediction_of_context_parallelism_comes(source: Callable[[], NodeFigures]) -> None:
    """Of the same batch on the same two hosts, DDP on one GPU its baseline: attention under a mask is slower."""
    measured, split = _strategies("h200x1-20261125")["ddp"], replace(_BATCH, context_parallel=2)
    base, step = (training_step(source(), LLAMA, shape) for shape in (_BATCH, split))
    baseline = Baseline((BaselinePhase(predicted=base, measured_s=measured, beyond_shrinks=True),))
    assert -0.1 < baseline.calibrated_s([step]) / _chunks("h200x2-20261122") - 1 < 0.0


@_SOURCES
def test_zero_takes_what_its_kernels_and_collectives_do(source: Callable[[], NodeFigures]) -> None:
    """Stage 2 with one sample of 2048 tokens on each of two H200s: 90 to 100 % of its step, as DDP's step is 81."""
    kept = json.loads((shipped_suites() / "measured/deepspeed_scaling-h200x2-20261121.json").read_text())
    (found,) = (point for point in kept["points"] if point["status"] == "ok")
    step = training_step(source(), LLAMA, replace(_BATCH, samples=1, sharing="zero", data_parallel=2))
    assert 0.9 < step.total_s / found["metrics"]["step_s"]["value"] < 1.0


def _wider(figures: NodeFigures, *, tree: bool) -> NodeFigures:
    """With the collectives of two GPUs as they would be for four."""
    two = {operation: curve for (operation, count), curve in figures.collectives.items() if count == 2}
    four = {(operation, 4): curve.at(operation, 2, 4, tree=tree) for operation, curve in two.items()}
    return replace(figures, collectives={**figures.collectives, **four})


@_SOURCES
@pytest.mark.parametrize(
    ("suite", "first_token", "off"),
    [("tp_scaling", "ttft_s", (-0.08, -0.06)), ("tp_scaling_vllm", "ttft_p99_s", (-0.09, -0.07))],
)
def test_generation_on_four_gpus_from_one_and_two(
    suite: str, first_token: str, off: tuple[float, float], source: Callable[[], NodeFigures]
) -> None:
    """Extrapolated over measured speedup, less 1: the whole interval lies below what was measured."""
    measured, figures = _measured(suite), source()
    one = ONE[suite]
    baseline = generation_baseline(generation_phases(figures, LLAMA, one), measured[1], first_token)

    def law(count: int, *, tree: bool) -> float:
        split = replace(one, tensor_parallel=count)
        phases = generation_phases(_wider(figures, tree=tree), LLAMA, split)
        return measured[1]["step_s"] / baseline.calibrated_s(phases)

    laws = [partial(law, tree=tree) for tree in (False, True)]
    (found,) = predict({2: measured[1]["step_s"] / measured[2]["step_s"]}, [4], laws)
    speedup = measured[1]["step_s"] / measured[4]["step_s"]
    assert off[0] < found.speedup / speedup - 1 < off[1]
    assert found.high < speedup


@_SOURCES
@pytest.mark.parametrize(
    ("suite", "beyond"),
    [
        ("ddp_scaling", 0.02),
        ("lora_scaling", 0.0),
        ("fsdp_scaling", 0.05),
        ("tensor_training_scaling", 0.0),
        ("pipeline_scaling", 0.0),
    ],
)
def test_training_on_four_gpus_from_one_and_two(suite: str, beyond: float, source: Callable[[], NodeFigures]) -> None:
    """The extrapolation is within 7 % of what was measured, which lies in the laws' range or so far outside."""
    measured, figures = _measured(suite), source()

    def law(count: int, *, tree: bool) -> float:
        return _predicted_speedup(suite, figures, _wider(figures, tree=tree), count)

    speedups = {count: measured[count]["tokens_per_s"] / measured[1]["tokens_per_s"] for count in (2, 4)}
    (found,) = predict({2: speedups[2]}, [4], [partial(law, tree=tree) for tree in (False, True)])
    assert found.speedup == pytest.approx(speedups[4], rel=0.07)
    assert max(0.0, speedups[4] / found.high - 1, found.low / speedups[4] - 1) <= beyond


@pytest.mark.parametrize("slow", ["matmul_flops_per_s", "memory_bytes_per_s"])
def test_one_slow_gpu_of_four_costs_speedup(slow: str) -> None:
    """At 70 %, while the baseline ran on a good one: less is predicted, and what it costs is imbalance."""
    measured, figures = _measured("tp_scaling"), _figures()
    lame = replace(figures, **{slow: 0.7 * getattr(figures, slow)})
    one = ONE["tp_scaling"]
    four = replace(one, tensor_parallel=4)
    base = generation_baseline(generation_phases(figures, LLAMA, one), measured[1], "ttft_s")
    even, slowed = (generation_phases(node, LLAMA, four) for node in (figures, lame))
    assert base.calibrated_s(slowed) > 1.02 * base.calibrated_s(even)
    parts = attribute(base.calibrated_s(slowed), base, predicted=slowed, even=even, share=0.25)
    assert parts.imbalance_s == pytest.approx(base.calibrated_s(slowed) - base.calibrated_s(even))
    assert parts.unexplained_s == 0.0


def test_the_fits_follow_the_curves() -> None:
    """All-reduce from 1 MiB to 2 GiB."""
    for count in (2, 4):
        curve = _figures().collectives["all_reduce", count]
        assert curve.misfit_fraction < 0.15
        assert 5e-6 < curve.alpha_s < 50e-6
