"""Turns that a plan refuses, each with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.core.feasibility import infeasible
from pybench.model.machine import DeviceKind, Devices
from pybench.model.suite import Effort, Point
from pybench.model.workloads.turn import Turn
from tests.builders import TINY

SHARED: dict[str, Any] = {"topology": "shared", "batch_size": 8, "prompt_tokens": 8, "output_tokens": 8}
FULL: dict[str, Any] = {**SHARED, "topology": "full", "strategy": "fsdp", "tensor_parallel": 2, "sleep_level": 2}


def reason(given: dict[str, Any], device: DeviceKind = "cuda", **shape: Any) -> str | None:
    settings = Turn(**{"backend": "vllm", "model": "m", **given})
    point = Point(id="t", benchmark="t", axes={}, settings=settings, effort=Effort(), architecture={**TINY, **shape})
    return infeasible(point, Devices(device, 64))


@pytest.mark.parametrize(
    "given",
    [SHARED, FULL, {**FULL, "train_context_parallel": 2}, {**FULL, "handover": "file", "batch_size_per_gpu": 2}],
)
def test_what_works_is_planned(given: dict[str, Any]) -> None:
    """On as many GPUs as it takes."""
    assert reason(given) is None


@pytest.mark.parametrize(
    ("given", "shape", "found"),
    [
        (
            {**SHARED, "lora_rank": 4, "sleep_level": 2},
            {},
            "sleep_level: level 2 discards the base weights, LoRA hands over the adapter alone",
        ),
        ({**FULL, "tensor_parallel": 16}, {}, "can't be split over tensor_parallel 16"),
        ({**FULL, "tensor_parallel": 3}, {}, "can't be split over tensor_parallel 3"),
        (
            {**FULL, "train_tensor_parallel": 3},
            {},
            "train_tensor_parallel: 2 GPUs can't be split over train_tensor_parallel 3",
        ),
        (FULL, {"tie_word_embeddings": True}, "m ties its head to its embedding, which the engine would split"),
        (
            SHARED,
            {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 4},
            "weights are handed over to llama, qwen2, qwen3 only, not gemma3_text",
        ),
        (
            {**FULL, "batch_size": 6, "batch_size_per_gpu": 2},
            {},
            "6 samples in a step are no multiple of the 4 that all ranks take at once",
        ),
        ({**SHARED, "output_tokens": 4096}, {}, "positions of m"),
    ],
)
def test_what_can_not_run_is_refused_before_anything_runs(
    given: dict[str, Any], shape: dict[str, Any], found: str
) -> None:
    """The reason names the fault and, where there is a choice, the remedy."""
    assert found in (reason(given, **shape) or "")


def test_an_engine_needs_gpus() -> None:
    """The torch backend stands in for it on a CPU."""
    assert "backend vllm runs on GPUs only" in (reason(SHARED, "cpu") or "")
    assert reason({**SHARED, "backend": "torch"}, "cpu") is None
