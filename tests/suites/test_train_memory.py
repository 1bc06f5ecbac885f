"""Shipped training suites fit the cards their profiles are named after, by an estimate that kept runs confirm."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pybench.compute.axis_words import with_words
from pybench.compute.flops import num_parameters
from pybench.compute.plan import expand
from pybench.model.decoder_shape import DecoderShape
from pybench.model.suite import Point
from pybench.model.workloads.checkpoint import Checkpoint
from pybench.model.workloads.train import Train
from pybench.store.model_shapes import load_models
from pybench.store.suite.file import read_suite
from tests.suites.test_train_suites import SUITES, TRAINING

CARD_BYTES = {"rtx4090": 24e9, "a100": 80e9, "h100": 80e9, "h200": 141e9}
MEASURED = {
    "ddp_scaling": "h200x4",
    "fsdp_scaling": "h200x4",
    "lora_scaling": "h200x4",
    "pipeline_scaling": "h200x4",
    "tensor_training_scaling": "h200x4",
    "deepspeed_scaling": "h200x2",
}
BF16 = 2
NF4 = 0.516  # with double quantisation: 4 bits, 8 for the scale of 64 weights, 32 for that of 256 scales
# For each logit, when its gradient is made: itself and its gradient in bfloat16, both again in float32.
LOSS = 12


def needed_bytes(point: Point) -> float:
    """Of the rank that holds most: weights, gradients, AdamW's states, checkpoints and logits, in bfloat16."""
    settings, shape = point.settings, point.shape
    assert isinstance(settings, Train)
    assert shape is not None
    samples = 1 if settings.finds_batch_size else settings.micro_batch_size
    tokens = samples * settings.sequence_tokens // settings.context_parallel
    logits: float = min(tokens, settings.loss_chunk_tokens or tokens) * shape.vocabulary
    checkpoints: float = BF16 * tokens * shape.hidden * shape.layers / settings.pipeline_parallel
    weights = held_parameters(settings, shape)
    if settings.strategy == "deepspeed":
        return zero_bytes(settings, weights) + LOSS * logits + checkpoints
    if settings.lora_rank:
        frozen = packed_bytes(shape) if settings.weights == "nf4" else BF16 * weights
        return frozen + checkpoints + LOSS * logits
    lasting, gradients = 3 * BF16 * weights, BF16 * weights
    if settings.strategy in {"ddp", "accelerate"} and settings.data_parallel > 1:
        buckets = gradients * (1 if settings.gradient_as_bucket_view else 2)
        return lasting + buckets + checkpoints + LOSS * logits
    if settings.strategy == "pipeline_parallel":
        parts = settings.microbatches or settings.pipeline_parallel
        # torch keeps the logits of every part, and joins them at the end.
        return lasting + gradients + max(BF16 * logits + LOSS * logits / parts, 2 * BF16 * logits)
    if settings.strategy == "layer_split":
        return lasting + checkpoints + max(gradients + 2 * BF16 * logits, (BF16 + LOSS) * logits)
    return lasting + max(gradients, checkpoints + LOSS * logits)


def packed_bytes(shape: DecoderShape) -> float:
    """Four bits and the scales of their blocks for each weight of a layer; embedding and head in bfloat16."""
    whole = shape.embedding_weights * (1 if shape.tied_embeddings else 2)
    return BF16 * whole + NF4 * (num_parameters(shape) - whole)


def control_bytes(point: Point) -> float:
    """What FSDP holds besides in control steps: all weights, and the gradients of those that are trained."""
    settings = point.settings
    assert isinstance(settings, Train)
    assert point.shape is not None
    if settings.strategy != "fsdp" or settings.data_parallel == 1 or not settings.control_steps:
        return 0.0
    return BF16 * num_parameters(point.shape) * (1 if settings.lora_rank else 2)


def held_parameters(settings: Train, shape: DecoderShape) -> float:
    """Parameters of the model that one rank holds; the last stage has the head besides its layers."""
    whole = num_parameters(shape)
    if settings.pipeline_parallel > 1:
        head = shape.vocabulary * shape.hidden
        return (whole - 2 * head) / settings.pipeline_parallel + head
    if settings.strategy == "fsdp":
        return whole / (settings.data_parallel * settings.tensor_parallel)
    return whole / settings.tensor_parallel


def zero_bytes(settings: Train, weights: float) -> float:
    """Weights and gradients in 16 bits; weights, gradients and two states in float32. The stage says what is split."""
    ranks = settings.data_parallel
    if settings.offload_optimizer:
        return 2 * BF16 * weights
    return weights * (20 / ranks if settings.zero_stage == 3 else 4 + 16 / ranks)


def points(name: str, machine: str) -> tuple[Point, ...]:
    suite = read_suite(SUITES / f"{name}.toml", profile=machine, machine_kind=machine)
    found = expand(with_words(suite, num_devices=8), load_models(), device="cuda", num_devices=8).points
    trainers = (replace(p, settings=p.settings.training) if isinstance(p.settings, Checkpoint) else p for p in found)
    return tuple(point for point in trainers if isinstance(point.settings, Train))


@pytest.mark.parametrize("machine", CARD_BYTES)
@pytest.mark.parametrize("name", [name for name in TRAINING if name != "evaluation_step"])
def test_every_profile_fits_its_card(name: str, machine: str) -> None:
    """Points that run out of memory on the very card they are meant for would be no sizes."""
    found = {point.id: round((needed_bytes(point) + control_bytes(point)) / 1e9, 1) for point in points(name, machine)}
    assert found
    assert {id_: needed for id_, needed in found.items() if needed * 1e9 > CARD_BYTES[machine]} == {}


@pytest.mark.parametrize("name", MEASURED)
def test_the_estimate_is_near_what_was_measured(name: str) -> None:
    """Peaks of the kept runs: at most 10 % above or below."""
    (path,) = Path(SUITES / "measured").glob(f"{name}-{MEASURED[name]}-*.json")
    kept = {point["id"]: point["metrics"] for point in json.loads(path.read_text())["points"]}
    peaks = {id_: metrics["peak_memory_bytes"]["value"] for id_, metrics in kept.items() if metrics}
    compared = {point.id: needed_bytes(point) / peaks[point.id] for point in points(name, "h200") if point.id in peaks}
    assert compared.keys() == peaks.keys()
    assert compared == {id_: pytest.approx(1.0, abs=0.1) for id_ in peaks}
