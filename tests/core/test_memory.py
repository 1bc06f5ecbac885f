"""Memory of points: a point that may not fit runs with a note, one that certainly doesn't is left out."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.core.memory import may_not_fit, memory_need, memory_reasons
from pybench.core.plan import expand
from pybench.files.shipped import load_models
from pybench.model.machine import Devices
from pybench.model.suite import Benchmark, Effort, Plan, Point, Suite
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.turn import Turn
from pybench.report.plan import render
from tests.builders import training_point, with_settings

H200, CARD_16_GB = 150.75e9, 17.2e9
LLAMA = 8.03e9
"""Weights of llama-3.1-8b."""


def point(settings: Any) -> Point:
    shape = load_models()[settings.model]
    return Point(id="p", benchmark="b", axes={}, settings=settings, effort=Effort(), architecture=shape)


def engine(**options: Any) -> Point:
    sizes = {"model": "llama-3.1-8b", "batch_size": 64, "prompt_tokens": 1024, "output_tokens": 1024}
    return point(Generate(**{"backend": "vllm", **sizes, **options}))


def refused(point: Point, memory_bytes: float | None) -> bool:
    return any(memory_reasons(point, Devices("cuda", 8, memory_bytes=memory_bytes)))


def test_weights_gradients_and_states_beyond_the_memory_are_refused() -> None:
    """gpt-oss-20b has 20.9e9 weights: itself, gradient and two moments of 2 bytes each are 156 GiB."""
    full = training_point("gpt-oss-20b")
    assert "156 GiB a GPU, of 140 GiB" in str([*memory_reasons(full, Devices("cuda", 8, memory_bytes=H200))])
    assert not refused(full, 200e9)
    assert not refused(full, None)
    for change in (
        {"optimizer": "adamw_8bit"},
        {"optimizer": "paged_adamw"},
        {"lora_rank": 8},
        {"strategy": "fsdp", "data_parallel": 2},
        {"strategy": "fsdp", "cpu_offload": True},
        {"strategy": "deepspeed", "zero_stage": 3, "data_parallel": 4},
        {"strategy": "deepspeed", "offload_optimizer": True},
    ):
        assert not refused(with_settings(full, **change), H200), change


def test_activations_refuse_nothing() -> None:
    """A batch of 64 needs far more than there is, and runs: an allocator or a library may do with less."""
    large = training_point("llama-3.1-8b", batch_size_per_gpu=64)
    need = memory_need(large)
    assert need is not None
    assert need.num_bytes > 1.5 * H200
    assert may_not_fit(need, H200)
    assert not refused(large, H200)


def test_weights_alone_refuse_generation() -> None:
    """8.03e9 weights of 2 bytes on one GPU, half of that on two, a byte in fp8; engine arguments may move them."""
    assert str(memory_need(engine(prompt_tokens=2, output_tokens=2))) == "at least 15 GiB"
    assert refused(engine(), 16e9)
    assert not refused(engine(), CARD_16_GB)
    assert not refused(engine(tensor_parallel=2), 9e9)
    assert not refused(engine(quantization="fp8"), 12e9)
    assert not refused(engine(backend="transformers", quantization="bitsandbytes"), 7e9)
    assert not refused(engine(backend="tensorrt_llm", quantization="awq"), 7e9)
    assert not refused(engine(engine_args={"cpu_offload_gb": 10}), 10e9)


def test_an_evaluation_has_all_weights_on_each_gpu() -> None:
    """Each of two replicas has 8.03e9 weights of 2 bytes, and the logits of its samples."""
    sizes: dict[str, Any] = {"method": "loss", "prompt_tokens": 1024, "output_tokens": 1024}
    one = point(Evaluate(backend="torch", model="llama-3.1-8b", batch_size=2, **sizes))
    need = memory_need(one)
    assert need is not None
    assert need.certain_bytes == pytest.approx(2 * LLAMA, rel=1e-3)
    assert need.num_bytes == pytest.approx(2 * LLAMA + 2 * 2048 * 128_256 * 10, rel=1e-3)


@pytest.mark.parametrize(("sleep_level", "bytes_of_a_weight"), [(0, 10), (1, 8), (2, 8)])
def test_a_turn_has_engine_and_trainer_together_only_without_sleep(sleep_level: int, bytes_of_a_weight: int) -> None:
    """1.236e9 weights: 2 bytes each in the engine, 8 in the trainer."""
    turn = Turn(
        backend="vllm",
        model="llama-3.2-1b",
        topology="shared",
        sleep_level=sleep_level,
        batch_size=2,
        prompt_tokens=4,
        output_tokens=4,
        activation_checkpointing="full",
    )
    need = memory_need(point(turn))
    assert need is not None
    assert need.is_least
    assert need.certain_bytes == pytest.approx(bytes_of_a_weight * 1.2359e9, rel=0.005)
    assert need.num_bytes == pytest.approx(need.certain_bytes, rel=0.02)


def test_offloaded_states_need_room_on_their_host() -> None:
    """8.03e9 weights of 16 bytes each for ZeRO, half on each of two hosts, and of 8 bytes for FSDP."""
    zero = training_point("llama-3.1-8b", strategy="deepspeed", zero_stage=2, offload_optimizer=True, data_parallel=2)
    fsdp = training_point("llama-3.1-8b", strategy="fsdp", cpu_offload=True, data_parallel=2)
    host, small = (Devices("cuda", 8, memory_bytes=H200, host_memory_bytes=number) for number in (100e9, 60e9))
    ((kind, text),) = memory_reasons(zero, host)
    assert (kind, "120 GiB of host memory, of 93.1 GiB" in text) == ("memory", True)
    assert not any(memory_reasons(with_settings(zero, nodes=2), host))
    assert not any(memory_reasons(fsdp, host))
    assert any(memory_reasons(fsdp, small))
    assert any(memory_reasons(with_settings(fsdp, nodes=2, hybrid_shard=True), small))


@pytest.mark.parametrize(("memory_bytes", "is_refused"), [(H200, True), (200e9, False), (None, False)])
def test_the_plan_shows_needs_skips_and_notes(memory_bytes: float | None, is_refused: bool) -> None:
    """The plan skips what can't fit, shows the needs of the others, and nothing where the memory is not known."""
    given: dict[str, Any] = {"backend": "torch", "model": "gpt-oss-20b", "batch_size_per_gpu": 32}
    given |= {"sequence_tokens": 2048, "activation_checkpointing": "full"}
    benchmark = Benchmark(name="full", workload="train", settings=given, axes={}, effort=Effort())
    suite = Suite(name="s", description="d", benchmarks=(benchmark,))
    plan = expand(suite, load_models(), Devices("cuda", 1, memory_bytes=memory_bytes))
    assert (len(plan.skips), len(plan.points)) == ((1, 0) if is_refused else (0, 1))
    text = render(suite, plan, gpu_memory_bytes=memory_bytes)
    assert ("full: skipped: weights, gradients" in text) == is_refused
    assert ("full: may not fit: a point that runs out of memory is left out" in text) == (memory_bytes == 200e9)


def test_a_plan_without_memory_has_no_notes() -> None:
    """CPUs, and GPUs whose driver reports no memory."""
    large = training_point("llama-3.1-8b", batch_size_per_gpu=64)
    suite = Suite(name="s", description="", benchmarks=())
    assert "may not fit" in render(suite, Plan(points=(large,), skips=()), None, H200)
    assert "may not fit" not in render(suite, Plan(points=(large,), skips=()))
