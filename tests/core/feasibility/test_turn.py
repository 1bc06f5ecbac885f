"""Turns that a plan refuses, each with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.core.feasibility import infeasible
from pybench.model.machine import DeviceKind, Devices
from pybench.model.suite import Effort, Point
from pybench.model.workloads.traits import Reason
from pybench.model.workloads.turn import Turn
from tests.builders import TINY

SHARED: dict[str, Any] = {"topology": "shared", "batch_size": 8, "prompt_tokens": 8, "output_tokens": 8}
FULL: dict[str, Any] = {**SHARED, "topology": "full", "strategy": "fsdp", "tensor_parallel": 2, "sleep_level": 2}


def reasons(given: dict[str, Any], device: DeviceKind = "cuda", **shape: Any) -> list[Reason]:
    settings = Turn(**{"backend": "vllm", "model": "m", **given})
    point = Point(id="t", benchmark="t", axes={}, settings=settings, effort=Effort(), architecture={**TINY, **shape})
    return list(infeasible(point, Devices(device, 64)))


@pytest.mark.parametrize(
    "given",
    [SHARED, FULL, {**FULL, "train_context_parallel": 2}, {**FULL, "handover": "file", "batch_size_per_gpu": 2}],
)
def test_what_works_is_planned(given: dict[str, Any]) -> None:
    """64 GPUs suffice."""
    assert reasons(given) == []


@pytest.mark.parametrize(
    ("given", "shape", "kind", "facts"),
    [
        ({**SHARED, "lora_rank": 4, "sleep_level": 2}, {}, "settings", ("sleep_level: level 2", "LoRA")),
        ({**FULL, "tensor_parallel": 16}, {}, "uneven", ("tensor_parallel 16",)),
        ({**FULL, "tensor_parallel": 3}, {}, "uneven", ("tensor_parallel 3",)),
        ({**FULL, "train_tensor_parallel": 3}, {}, "settings", ("2 GPUs", "train_tensor_parallel 3")),
        (FULL, {"tie_word_embeddings": True}, "unsupported", ("m ties its head", "the engine")),
        (
            *(SHARED, {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 4}),
            *("unsupported", ("llama, qwen2, qwen3 only", "gemma3_text")),
        ),
        ({**FULL, "batch_size": 6, "batch_size_per_gpu": 2}, {}, "uneven", ("6 samples", "the 4")),
        ({**SHARED, "output_tokens": 4096}, {}, "length", ("4104 tokens",)),
    ],
)
def test_what_can_not_run_is_refused_before_anything_runs(
    given: dict[str, Any], shape: dict[str, Any], kind: str, facts: tuple[str, ...]
) -> None:
    """The reason names the fault and, where there is a choice, the remedy."""
    found = [text for each, text in reasons(given, **shape) if each == kind]
    assert any(all(fact in text for fact in facts) for text in found)


def test_an_engine_needs_gpus() -> None:
    """The torch backend stands in for it on a CPU."""
    assert [kind for kind, _ in reasons(SHARED, "cpu")] == ["device"]
    assert reasons({**SHARED, "backend": "torch"}, "cpu") == []
