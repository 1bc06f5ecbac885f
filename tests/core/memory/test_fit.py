"""What points need of a GPU's memory, and what to change where it is too little."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pybench.core.feasibility.point import infeasible
from pybench.core.memory.fit import memory_need, memory_reason, most_samples, tight_memory_changes
from pybench.core.memory.train import host_bytes
from pybench.core.plan.expand import expand
from pybench.files.model_shapes import load_models
from pybench.model.devices import Devices
from pybench.model.effort import Effort
from pybench.model.suite import Benchmark, Plan, Point, Suite
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import Turn
from pybench.report.plan import render
from tests.builders import training_point, with_settings

H200, A100, CARD_16_GB = 150.75e9, 85.9e9, 17.2e9


def point(settings: Any, model: str) -> Point:
    shape = load_models()[model]
    return Point(id="p", benchmark="b", axes={}, settings=settings, effort=Effort(), architecture=shape)


def gpu_reason(point: Point, memory_bytes: float | None) -> str | None:
    return memory_reason(point, Devices("cuda", 8, memory_bytes=memory_bytes))


def test_a_mixture_with_all_weights_trained_by_hand() -> None:
    """gpt-oss-20b has 20.9e9 weights: itself, gradient and two moments of 2 bytes each are 156 GiB."""
    reason = gpu_reason(training_point("gpt-oss-20b"), H200)
    assert reason == ("needs about 156 GiB a GPU, of 140 GiB: fits with optimizer = 'adamw_8bit' or lora_rank = 8")


def test_the_changes_named_are_those_that_fit() -> None:
    """By DDP on four GPUs also sharding does; on 16 GB nothing does, and the model or the strategy must change."""
    four = training_point("gpt-oss-20b", data_parallel=4)
    assert str(gpu_reason(four, H200)).endswith(": fits with lora_rank = 8 or strategy = 'fsdp'")
    assert gpu_reason(with_settings(four, lora_rank=8), H200) is None
    assert str(gpu_reason(four, CARD_16_GB)).endswith("take more GPUs, a smaller model or a strategy that splits it")


def test_four_bits_and_zero_are_named_where_the_strategy_has_them() -> None:
    """14.8e9 weights take 30 GB under adapters, 10 packed; stage 3 divides what stage 2 keeps."""
    adapters = training_point("qwen2.5-14b", lora_rank=8, loss_chunk_tokens=512)
    assert str(gpu_reason(adapters, CARD_16_GB)).endswith(": fits with weights = 'nf4'")
    zero = training_point("qwen2.5-14b", strategy="deepspeed", data_parallel=4, zero_stage=2, loss_chunk_tokens=None)
    assert "zero_stage = 3" in str(gpu_reason(zero, A100))


@pytest.mark.parametrize(
    ("batch", "change"),
    [
        ({"batch_size_per_gpu": 1, "grad_accum": 4}, "grad_accum = 1"),
        ({"global_batch_size": 32, "batch_size_per_gpu": 1, "grad_accum": "auto"}, "batch_size_per_gpu = 4"),
    ],
)
def test_a_lone_pass_is_named_where_several_hold_whole_gradients(batch: dict[str, Any], change: str) -> None:
    """FSDP of 32.8e9 weights on eight GPUs, by hand: 6 bytes of an eighth, and 2 of each until the last pass, 83.9 GiB.

    Embedding and head of 1.56e9 are gathered, 2.9 GiB, and logits take 3.5. In a lone pass gradients are an eighth.
    """
    several = training_point("qwen3-32b", strategy="fsdp", data_parallel=8, **batch)
    assert gpu_reason(several, 80e9) == f"needs about 91.5 GiB a GPU, of 74.5 GiB: fits with {change} or lora_rank = 8"
    assert tight_memory_changes(several, 98.3e9) == (change, "lora_rank = 8")


def test_a_training_that_ran_out_of_memory_has_changes_where_its_estimate_was_tight() -> None:
    """ZeRO's stage 2 for 6.7e9 weights: it ran out of two H100s' memory, of 79.6 GiB; 75.3 GiB are planned.

    Stage 3 takes 58.6 GiB there. On one GPU, too, it takes less: it updates 1e9 weights at a time.
    """
    tight = training_point("llama-2-7b", strategy="deepspeed", data_parallel=2, batch_size_per_gpu=4)
    alone = with_settings(tight, data_parallel=1)
    assert gpu_reason(tight, 85.5e9) is None
    assert tight_memory_changes(tight, 85.5e9) == ("zero_stage = 3", "offload_optimizer = true", "lora_rank = 8")
    assert tight_memory_changes(alone, H200) == ("zero_stage = 3", "offload_optimizer = true", "lora_rank = 8")
    assert tight_memory_changes(tight, H200) == ()


@pytest.mark.parametrize(
    ("options", "memory_bytes", "line"),
    [
        (
            {"strategy": "deepspeed", "data_parallel": 2, "batch_size_per_gpu": 4},
            85.5e9,
            "p: may not fit: less is needed with zero_stage = 3 or offload_optimizer = true\n  or lora_rank = 8\n",
        ),
        ({"strategy": "tensor_parallel"}, 53e9, "p: may not fit: take more GPUs or a smaller batch\n"),
        ({"strategy": "deepspeed", "data_parallel": 4, "batch_size_per_gpu": 4}, 85.5e9, None),
    ],
)
def test_the_plan_names_what_may_not_fit(options: dict[str, Any], memory_bytes: float, line: str | None) -> None:
    """What is as near to the memory as estimates err is run all the same."""
    planned = training_point("llama-2-7b", **options)
    assert gpu_reason(planned, memory_bytes) is None
    text = render(Suite(name="s", description="", benchmarks=()), Plan(points=(planned,), skips=()), None, memory_bytes)
    assert text.count("may not fit") == (0 if line is None else 1)
    assert (line or "") in text


def test_a_batch_that_is_to_be_found_has_its_most_in_the_plan() -> None:
    """By hand: 6 bytes of 8.03e9 weights stay, 48.2 GB; a sample has 3.15 GB of logits and 0.54 of layers' inputs.

    Gradients come as these go. Of a given batch only what divides a rank's 24 counts, beside the gradients of a pass
    before and DDP's buckets.
    """
    found = training_point("llama-3.1-8b", batch_size_per_gpu="auto")
    assert most_samples(found, 100e9) == 14
    part = with_settings(found, global_batch_size=48, grad_accum="auto", data_parallel=2)
    assert most_samples(part, 100e9) == 4
    assert most_samples(found, 40e9) == 0
    assert most_samples(training_point("llama-3.1-8b"), 100e9) is None
    suite, plan = Suite(name="s", description="", benchmarks=()), Plan(points=(found, part), skips=())
    text = render(suite, plan, None, 100e9)
    assert "at least 59.8 GiB" in text
    assert "\np: batch_size_per_gpu = 'auto': at most 14, by the estimate\n" in text
    assert "auto" not in render(suite, plan)


def test_kept_activations_by_hand() -> None:
    """16 bytes of 4096, 4 of 4096 queries and 1024 keys, 8 of 14336 and 128 for each token of 32 layers: 13.16 GB.

    With 64.24 GB (59.8 GiB) of weights, gradients and states, of which gradients come later, and 3.15 of logits.
    """
    assert str(memory_need(training_point("llama-3.1-8b"))) == "about 59.8 GiB"
    kept = memory_need(training_point("llama-3.1-8b", activation_checkpointing=None))
    assert kept is not None
    assert not kept.is_least
    layer = 16 * 4096 + 4 * (4096 + 1024) + 128 + 8 * 14336
    last = 8 * 4096
    assert kept.num_bytes == pytest.approx(6 * 8.03e9 + 2048 * (32 * layer + last + 12 * 128_256), rel=1e-3)


def test_fsdp_gathers_embedding_head_and_two_layers_by_hand() -> None:
    """Of 8.03e9 weights 1.051e9 are embedding and head, and a layer 218.1e6; 4096 tokens, on one rank and on four.

    On one most is needed in the first layer, where an embedding's gradient is to come, beside that layer's own and the
    copy of it that is reduced; on four at the loss.
    """
    one, four = (
        memory_need(training_point("llama-3.1-8b", strategy="fsdp", data_parallel=ranks, sequence_tokens=4096))
        for ranks in (1, 4)
    )
    assert one is not None
    assert four is not None
    layer = 4096 * (16 * 4096 + 4 * 5120 + 128 + 8 * 14_336)
    assert one.num_bytes == pytest.approx(8 * 8.03e9 + layer + 2 * (1.051e9 / 2 + 4 * 218.1e6), rel=1e-3)
    loss = 4096 * (2 * 32 * 4096 + 12 * 128_256) + 2 * 1.051e9
    assert four.num_bytes == pytest.approx(6 * 8.03e9 / 4 + loss, rel=1e-3)


@pytest.mark.parametrize(
    ("stage", "ranks", "weight_bytes", "fixed_bytes", "peak_bytes"),
    [
        (1, 2, 2 + 20 / 2, 0, 96.46e9),
        (1, 4, 2 + 12 / 4 + 2, 1e9 + 2048 * (2 * 32 * 4096 + 12 * 128_256), 61.91e9),
        (3, 2, 16 / 2, 1e9 + 8e9, 73.52e9),
        (3, 4, 16 / 4, 1e9 + 8e9, 41.23e9),
    ],
)
def test_zero_by_hand(stage: int, ranks: int, weight_bytes: float, fixed_bytes: float, peak_bytes: float) -> None:
    """Of 8.03e9 weights, beside peaks on H200s. Two ranks need most when stage 1 updates, four in its backward.

    A bucket of 1 GB is there in backward, in stage 3 always, which updates 1e9 weights at a time, 8 bytes each.
    """
    need = memory_need(
        training_point(
            "llama-3.1-8b", strategy="deepspeed", zero_stage=stage, data_parallel=ranks, activation_checkpointing="full"
        )
    )
    assert need is not None
    assert need.num_bytes == pytest.approx(weight_bytes * 8.03e9 + fixed_bytes, rel=1e-3)
    assert need.num_bytes == pytest.approx(peak_bytes, rel=0.02)


def test_zero_2_splits_gradients() -> None:
    """On four ranks 2 + 20 / 4 bytes of each of 8.03e9 weights when it updates; a peak of 56.39 GB on H200s."""
    need = memory_need(training_point("llama-3.1-8b", strategy="deepspeed", zero_stage=2, data_parallel=4))
    assert need is not None
    assert need.num_bytes == pytest.approx(7 * 8.03e9, rel=1e-3)


@pytest.mark.parametrize(
    ("optimizer", "state_bytes"), [("adamw", 4), ("adamw_8bit", 2), ("paged_adamw", 0), ("sgd", 0)]
)
def test_an_optimizers_states_by_hand(optimizer: str, state_bytes: int) -> None:
    """8.03e9 weights and their gradients of 2 bytes; states of two numbers of 16 or 8 bits, paged ones or none."""
    need = memory_need(training_point("llama-3.1-8b", optimizer=optimizer))
    assert need is not None
    assert need.num_bytes == pytest.approx((4 + state_bytes) * 8.03e9, rel=1e-3)


def test_smaller_states_are_a_remedy_where_the_strategy_takes_them() -> None:
    """FSDP's parts are no tensors that bitsandbytes takes; ten bytes a weight become eight."""
    ddp = training_point("llama-3.1-8b", data_parallel=2)
    assert "optimizer = 'adamw_8bit'" in str(gpu_reason(ddp, 70e9))
    assert gpu_reason(with_settings(ddp, optimizer="adamw_8bit"), 70e9) is None
    fsdp = with_settings(ddp, strategy="fsdp")
    assert "optimizer" not in str(gpu_reason(fsdp, 20e9))


@pytest.mark.parametrize(
    ("options", "passing"),
    [
        # All gradients of the first pass, and 4096 tokens of 64 bytes of 4096 and 12 of each logit.
        ({"data_parallel": 8}, 2 * 8.03e9),
        ({"data_parallel": 2, "context_parallel": 4, "sequence_tokens": 16_384}, 2 * 8.03e9),
        ({"data_parallel": 8, "mixed_precision": "bfloat16"}, 4 * 8.03e9),
        ({"data_parallel": 8, "cpu_offload": True}, 2 * 8.03e9 - 6 * 8.03e9 / 8),
    ],
)
def test_fsdp_holds_whole_gradients_between_passes(options: dict[str, Any], passing: float) -> None:
    """Weights and states are split by eight, what several passes add up is not; embedding and head are gathered."""
    usual = {"strategy": "fsdp", "grad_accum": 2, "sequence_tokens": 4096}
    need = memory_need(training_point("llama-3.1-8b", **{**usual, **options}))
    assert need is not None
    kept = 4096 * (64 * 4096 + 12 * 128_256) + 2 * 1.051e9
    assert need.num_bytes == pytest.approx(6 * 8.03e9 / 8 + kept + passing, rel=2e-3)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_the_embedding_is_whole_where_norms_are_not_split(sequence_parallel: bool) -> None:
    """8 bytes of 525e6 weights on each of four ranks; along the sequence a quarter."""
    split = {"strategy": "tensor_parallel", "tensor_parallel": 4, "sequence_parallel": sequence_parallel}
    need = memory_need(training_point("llama-3.1-8b", **split))
    assert need is not None
    held = 8.03e9 / 4 if sequence_parallel else 525e6 + 7.505e9 / 4
    # In the first layer the embedding's gradient is to come, and a layer is computed again.
    embedding = 525e6 * held / 8.03e9
    norms = 2 * 4096 * 6 / (4 if sequence_parallel else 1)
    layer = norms + 4 * 4096 + (4 * 5120 + 128 + 8 * 14_336) / 4
    most = max(2 * held, 2 * held - 2 * embedding + 2048 * layer, 2048 * (64 * 4096 + 12 * 128_256))
    assert need.num_bytes == pytest.approx(6 * held + most, rel=2e-3)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        # All weights and gradients but what is gathered in any case.
        ({"data_parallel": 8}, 4 * 8.03e9 - 2 * 1.051e9),
        ({"data_parallel": 4, "tensor_parallel": 2}, 0),
        ({"data_parallel": 4, "context_parallel": 2}, 0),
        ({"data_parallel": 8, "lora_rank": 8, "weights": "nf4"}, 5.7e9 - 2 * 1.051e9),
        ({"data_parallel": 8, "strategy": "torchtune"}, 4 * 8.03e9 - 2 * 1.051e9),
        # Between the passes of a step whole gradients are there already.
        ({"data_parallel": 8, "grad_accum": 2}, 2 * 8.03e9 - 2 * 1.051e9),
    ],
)
def test_control_steps_gather_everything_where_there_are_some(options: dict[str, Any], more: float) -> None:
    """Four bits stay packed; beside a split of layers or sequences no step is silent."""
    point = training_point("llama-3.1-8b", **{"strategy": "fsdp", **options})
    before, after = memory_need(point), memory_need(with_settings(point, control_steps=3))
    assert before is not None
    assert after is not None
    assert after.num_bytes - before.num_bytes == pytest.approx(more, rel=1e-2, abs=1)


def test_control_steps_are_the_first_to_leave() -> None:
    """49.2 GB with them, which are no part of what is measured; 19.2 without."""
    point = training_point("llama-3.1-8b", strategy="fsdp", data_parallel=4, control_steps=3)
    first, *_ = tight_memory_changes(point, 40e9)
    assert first == "control_steps = 0"
    assert "control_steps = 0" not in tight_memory_changes(with_settings(point, control_steps=0), 19e9)


def test_a_layer_is_computed_again_under_adapters_too() -> None:
    """Of 32,768 tokens, whose layer has 6.0 GB and 2.1 of gradients beside all inputs of 8.6 and weights of 5.7."""
    options = {"lora_rank": 8, "lora_targets": "all_linear", "weights": "nf4", "loss_chunk_tokens": 1024}
    need = memory_need(training_point("llama-3.1-8b", **options, sequence_tokens=32_768))
    assert need is not None
    layer = 2 * 4096 * 4 + 2 * 2 * 4096 + 2 * (2 * 4096 + 2 * 1024) + 128 + 2 * 4 * 14_336 + 2 * 7 * 8
    gradients = 2 * (4096 + 2 * 14_336)
    assert need.num_bytes == pytest.approx(5.7e9 + 32_768 * (64 * 4096 + layer + gradients), rel=0.01)


def test_copies_of_stages_have_buckets() -> None:
    """2 bytes of the last of two ranks' 15 layers, and of the head, once more; on one copy nothing is averaged."""
    stages = training_point("llama-3.1-8b", strategy="pipeline_parallel", pipeline_parallel=2, batch_size_per_gpu=8)
    one, two = memory_need(stages), memory_need(with_settings(stages, data_parallel=2))
    assert one is not None
    assert two is not None
    assert two.num_bytes - one.num_bytes == pytest.approx(2 * ((8.03e9 - 1.051e9) * 15 / 32 + 525e6), rel=1e-3)


def test_what_can_not_run_is_no_remedy() -> None:
    """One sample can't go through four stages in as many parts."""
    stages = {"strategy": "pipeline_parallel", "pipeline_parallel": 4, "batch_size_per_gpu": 64, "schedule": "gpipe"}
    reason = str(gpu_reason(training_point("llama-3.1-8b", **stages, sequence_tokens=16_384), A100))
    assert "needs about" in reason
    assert "batch_size_per_gpu = 1" not in reason


def test_the_first_layer_is_computed_again_beside_nearly_all_gradients() -> None:
    """By hand, of 16,384 tokens: 16 bytes of 4096, 8 of 4096, 128 and 8 of 11008 each; an embedding's 0.26 GB later."""
    need = memory_need(training_point("llama-2-7b", batch_size_per_gpu=8))
    assert need is not None
    layer = 16 * 4096 + 8 * 4096 + 128 + 8 * 11_008
    assert need.num_bytes == pytest.approx(8 * 6.738e9 + 16_384 * layer - 2 * 32_000 * 4096, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "passing"),
    [
        ({"grad_accum": 4}, 2 * 8.03e9 + 2048 * (64 * 4096 + 12 * 128_256)),
        ({"grad_accum": "auto", "global_batch_size": 2}, 2 * 8.03e9 + 2048 * (64 * 4096 + 12 * 128_256)),
        ({"grad_accum": "auto", "global_batch_size": 1}, 2 * 8.03e9),
        ({"grad_accum": 4, "loss_chunk_tokens": 512}, 2 * 8.03e9 + 2048 * 64 * 4096 + 512 * 12 * 128_256),
        ({"grad_accum": "auto", "global_batch_size": 64, "batch_size_per_gpu": "auto"}, 2 * 8.03e9),
    ],
)
def test_gradients_of_a_first_pass_lie_beside_what_the_second_keeps(options: dict[str, Any], passing: float) -> None:
    """By hand: weights and states are 6 bytes of 8.03e9; 2 of 4096 in each of 32 layers, 12 of each logit."""
    need = memory_need(training_point("llama-3.1-8b", **options))
    assert need is not None
    assert need.is_least == (options.get("batch_size_per_gpu") == "auto")
    assert need.num_bytes == pytest.approx(6 * 8.03e9 + passing, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "weights_bytes"),
    [({}, 8), ({"comm_hook": "bf16"}, 8), ({"comm_hook": "powersgd"}, 10), ({"gradient_as_bucket_view": False}, 10)],
)
def test_gradients_of_several_passes_lie_in_their_buckets_or_beside_them(
    options: dict[str, Any], weights_bytes: int
) -> None:
    """By hand: what lasts is 8 bytes a weight, 2 more beside the buckets; and what a pass keeps, as above.

    PowerSGD adds what its factors left out to the next gradients: 2 more.
    """
    buckets = {"data_parallel": 2, "grad_accum": 4, "gradient_as_bucket_view": True, **options}
    need = memory_need(training_point("llama-3.1-8b", **buckets))
    assert need is not None
    kept = 2048 * (64 * 4096 + 12 * 128_256)
    assert need.num_bytes == pytest.approx(weights_bytes * 8.03e9 + kept, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "about 38.9 GiB"),
        ({"weights": "nf4"}, "about 29.3 GiB"),
        ({"lora_targets": "all_linear"}, "about 43.6 GiB"),
        ({"activation_checkpointing": "selective"}, "about 34.7 GiB"),
        ({"activation_checkpointing": "full"}, "about 21.9 GiB"),
        ({"lora_dropout": 0.1}, "about 40.9 GiB"),
        ({"lora_dropout": 0.1, "lora_targets": "all_linear"}, "about 52.3 GiB"),
        # What attends by a mask, drops inputs again or splits layers keeps more.
        ({"lora_dropout": 0.1, "activation_checkpointing": "selective"}, "at least 34.7 GiB"),
        ({"model": "gpt-oss-20b"}, "at least 52.6 GiB"),
    ],
)
def test_adapters_keep_what_they_read(options: dict[str, Any], expected: str) -> None:
    """By hand, for query and value: 8 bytes of 4096, 2 of 4096, 4 of 5120, 128, 6 of 14336 and 2 of 16, in each layer.

    4096 tokens of these, 32 layers and 4 bytes of 4096 behind them are 18.1 GiB; weights 15, packed 5.3; logits 5.9.
    Dropout: 3 bytes of 4096 for each of both adapters instead of 2 of 4096. Of all projections adapters have 21e6
    weights, of 8 bytes.
    """
    settings = {"lora_rank": 8, "activation_checkpointing": "none", "sequence_tokens": 4096, **options}
    model = settings.pop("model", "llama-3.1-8b")
    assert str(memory_need(training_point(model, **settings))) == expected


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("phi-3-mini", {"sequence_tokens": 2048}),
        ("llama-3.1-8b", {"dtype": "float32"}),
        ("llama-3.1-8b", {"activation_offload": True}),
        ("llama-3.1-8b", {"strategy": "pipeline_parallel", "pipeline_parallel": 2, "batch_size_per_gpu": 2}),
        ("llama-3.1-8b", {"strategy": "context_parallel", "context_parallel": 2}),
        ("llama-3.1-8b", {"strategy": "tensor_parallel", "tensor_parallel": 2, "compile": True}),
        ("qwen3-32b", {"activation_checkpointing": "selective", "compile": True}),
    ],
)
def test_what_is_kept_is_not_always_known(model: str, options: dict[str, Any]) -> None:
    """A window's mask, attention without its kernel, and what no run or count confirms."""
    kept = training_point(model, **{"activation_checkpointing": None, **options})
    assert str(memory_need(kept)).startswith("at least ")


def test_recomputing_is_a_remedy() -> None:
    """8.03e9 weights under adapters and what 4096 tokens keep of each layer; recomputed, 21.8 GiB are all."""
    point = training_point("llama-3.1-8b", lora_rank=8, sequence_tokens=4096, activation_checkpointing="none")
    reason = gpu_reason(point, 24e9)
    assert reason == "needs about 38.9 GiB a GPU, of 22.4 GiB: fits with activation_checkpointing = 'full'"


def test_generation_needs_its_weights() -> None:
    """By hand: 8.03e9 of 2 bytes on one GPU, a quarter of that on four."""
    usual: dict[str, Any] = {"model": "llama-3.1-8b", "batch_size": 1, "prompt_tokens": 2, "output_tokens": 2}
    one = point(Generate(backend="vllm", **usual), "llama-3.1-8b")
    four = point(Generate(backend="vllm", tensor_parallel=4, **usual), "llama-3.1-8b")
    assert (str(memory_need(one)), str(memory_need(four))) == ("at least 15 GiB", "at least 3.74 GiB")
    packed = point(Generate(backend="transformers", quantization="bitsandbytes", **usual), "llama-3.1-8b")
    # 0.5625 bytes of 6.98e9 weights in layers, 2 of embedding and head.
    assert str(memory_need(packed)) == "at least 5.61 GiB"
    torch = point(Generate(backend="torch", **usual), "llama-3.1-8b")
    assert str(gpu_reason(torch, 12e9)).startswith("needs at least 15 GiB a GPU, of 11.2 GiB: ")


def engine(**options: Any) -> Point:
    sizes = {"model": "llama-3.1-8b", "batch_size": 64, "prompt_tokens": 1024, "output_tokens": 1024}
    return point(Generate(**{"backend": "vllm", **sizes, **options}), options.get("model", "llama-3.1-8b"))


def test_an_engine_without_room_for_a_cache_is_refused() -> None:
    """By hand: 14.96 GiB of weights and 2 * 8 * 128 * 32 layers * 2 bytes * 2048 tokens, 0.25 GiB, of 0.9 * 16.02."""
    assert gpu_reason(engine(), CARD_16_GB) == (
        "needs at least 15.2 GiB a GPU for weights and the cache of a sequence, of 14.4 GiB (gpu_memory_utilization "
        "0.9 of 16 GiB): fits with tensor_parallel = 2 or quantization = 'fp8' or a smaller model"
    )
    for change in ({"tensor_parallel": 2}, {"pipeline_parallel": 2}, {"quantization": "fp8"}, {"model": "phi-3-mini"}):
        assert gpu_reason(engine(**change), CARD_16_GB) is None


def test_a_longer_context_than_needed_is_named_first() -> None:
    """131,072 tokens of 131,072 bytes are 16 GiB beside 14.96 of weights."""
    reason = str(gpu_reason(engine(max_context_tokens=131_072), 24e9))
    assert reason.startswith("needs at least 31 GiB a GPU for weights and the cache of a sequence, of 20.1 GiB")
    assert ": fits with max_context_tokens = 2048 or tensor_parallel = 2 or" in reason


def test_fp8_is_a_remedy_where_the_gpu_has_it() -> None:
    """A V100 has not."""
    v100 = Devices("cuda", 8, memory_bytes=CARD_16_GB, compute_capability=(7, 0))
    assert str(memory_reason(engine(dtype="float16"), v100)).endswith(
        ": fits with tensor_parallel = 2 or quantization = 'bitsandbytes' or a smaller model"
    )


@pytest.mark.parametrize(
    ("options", "memory_bytes", "refused"),
    [
        ({}, 16.33e9 / 0.9 * 1.001, False),
        ({}, 16.33e9 / 0.9 * 0.999, True),
        ({"gpu_memory_utilization": 0.4}, 24e9, True),
        # A cache for 130,000 tokens of 131,072 bytes is as large as the weights.
        ({"prompt_tokens": 129_000, "output_tokens": 1000}, 36.5e9, True),
        ({"prompt_tokens": 129_000, "output_tokens": 1000}, 37.1e9, False),
        # It may lie in host memory, or have another type.
        ({"engine_args": {"cpu_offload_gb": 10}}, 10e9, False),
        ({"backend": "transformers"}, CARD_16_GB, False),
        # Of what weights leave free.
        ({"backend": "tensorrt_llm", "gpu_memory_utilization": 0.4}, CARD_16_GB, False),
    ],
)
def test_only_an_engine_that_can_not_start_is_refused(options: Any, memory_bytes: float, refused: bool) -> None:
    """Weights and one sequence's cache are counted, and nothing that may be smaller."""
    assert (gpu_reason(engine(**options), memory_bytes) is not None) == refused


def test_a_remedy_leaves_room_for_what_is_not_counted() -> None:
    """Of 15.5 GB: 14.7e9 weights of a byte would fit, but embedding and head keep 16 bits; halves take 14.8."""
    reason = str(gpu_reason(engine(model="phi-4"), CARD_16_GB))
    assert reason.endswith(": fits with quantization = 'bitsandbytes' or a smaller model")


def test_the_share_of_memory_is_a_remedy_where_it_is_small() -> None:
    """0.9 of 22.4 GiB holds what 0.4 does not."""
    reason = gpu_reason(engine(gpu_memory_utilization=0.4, tensor_parallel=1), 24e9)
    assert (
        "(gpu_memory_utilization 0.4 of 22.4 GiB): fits with gpu_memory_utilization = 0.9 or tensor_parallel = 2"
        in str(reason)
    )


@pytest.mark.parametrize(("memory_bytes", "refused"), [(A100, True), (H200, True), (200e9, False), (None, False)])
def test_the_plan_skips_what_cannot_fit(memory_bytes: float | None, refused: bool) -> None:
    """And shows beside the others what they need of what is there; where the memory is not known it shows nothing."""
    given: dict[str, Any] = {"backend": "torch", "model": "gpt-oss-20b", "batch_size_per_gpu": 1}
    given |= {"sequence_tokens": 2048, "activation_checkpointing": "full"}
    benchmark = Benchmark(name="full", workload="train", settings=given, axes={}, effort=Effort())
    suite = Suite(name="s", description="d", benchmarks=(benchmark,))
    plan = expand(suite, load_models(), Devices("cuda", 1, memory_bytes=memory_bytes))
    assert (len(plan.skips), len(plan.points)) == ((1, 0) if refused else (0, 1))
    text = render(suite, plan, gpu_memory_bytes=memory_bytes)
    assert (re.search(r"of 186 GiB a GPU\n.*\n.* about 156 GiB\n", text) is not None) == (memory_bytes == 200e9)
    assert ("full: skipped: needs about 156 GiB a GPU" in text) == refused


def test_each_backend_has_its_own_quantization() -> None:
    """Four bits pack whole linear layers: no parts of them, and no experts."""
    usual: dict[str, Any] = {"model": "llama-3.1-8b", "batch_size": 1, "prompt_tokens": 2, "output_tokens": 2}
    engine = point(Generate(backend="vllm", quantization="bitsandbytes", **usual), "llama-3.1-8b")
    assert infeasible(engine, Devices("cuda", 1)) is None
    experts = point(Generate(backend="vllm", quantization="bitsandbytes", **usual), "gpt-oss-20b")
    assert "the experts of llama-3.1-8b are none" in str(infeasible(experts, Devices("cuda", 1)))
    other = point(Generate(backend="transformers", quantization="fp8", **usual), "llama-3.1-8b")
    assert infeasible(other, Devices("cuda", 1)) == "backend transformers has no quantization 'fp8', only bitsandbytes"
    library = point(Generate(backend="transformers", quantization="bitsandbytes", **usual), "llama-3.1-8b")
    assert infeasible(library, Devices("cuda", 1)) is None
    split = point(
        Generate(backend="transformers", quantization="bitsandbytes", tensor_parallel=2, **usual), "llama-3.1-8b"
    )
    assert "packs whole weights" in str(infeasible(split, Devices("cuda", 2)))


@pytest.mark.parametrize(
    ("sleep_level", "topology", "num_bytes"),
    [
        (0, "shared", 1.2359e9 * 10),
        (1, "shared", 1.2359e9 * 8),
        (2, "full", 1.2359e9 * 8 / 2 + 2 * 262.7e6 / 2 + 2 * (2 + 2) * 60.8e6),
    ],
)
def test_a_turn_has_engine_and_trainer_together_only_without_sleep(
    sleep_level: int, topology: Any, num_bytes: float
) -> None:
    """1.236e9 weights: 2 bytes each in the engine, 8 in the trainer, which two ranks of FSDP share.

    These gather the embedding of 262.7e6, whose gradient, a half for each, comes last, and two layers of 60.8e6, of one
    of which there are gradients and their copy.
    """
    ranks = {"strategy": "fsdp", "tensor_parallel": 2} if topology == "full" else {"strategy": "ddp"}
    turn = Turn(
        backend="vllm",
        model="llama-3.2-1b",
        topology=topology,
        sleep_level=sleep_level,
        batch_size=2,
        prompt_tokens=4,
        output_tokens=4,
        activation_checkpointing="full",
        **ranks,
    )
    need = memory_need(point(turn, "llama-3.2-1b"))
    assert need is not None
    assert need.is_least
    # Logits and checkpoints of eight tokens are 12 MB.
    assert need.num_bytes == pytest.approx(num_bytes, rel=0.005)


def test_an_evaluation_holds_all_weights() -> None:
    """8.03e9 of 2 bytes on each GPU of two copies: too many for 16 GB less a tenth, and no change is known."""
    settings = Evaluate(
        backend="torch", model="llama-3.1-8b", method="loss", batch_size=2, prompt_tokens=4, output_tokens=4
    )
    need = memory_need(point(settings, "llama-3.1-8b"))
    assert str(need) == "at least 15 GiB"
    assert str(gpu_reason(point(settings, "llama-3.1-8b"), 14e9)).startswith("needs at least 15 GiB a")


def test_states_in_host_memory_need_room_there() -> None:
    """8.03e9 weights of 16 bytes each for ZeRO, of which each of two hosts has half, and of 8 for FSDP."""
    zero = training_point("llama-3.1-8b", strategy="deepspeed", zero_stage=2, offload_optimizer=True, data_parallel=2)
    fsdp = training_point("llama-3.1-8b", strategy="fsdp", cpu_offload=True, data_parallel=2)
    host = Devices("cuda", 8, memory_bytes=H200, host_memory_bytes=100e9)
    assert str(memory_reason(zero, host)).startswith("needs about 120 GiB of host memory, of 93.1 GiB: keep states on")
    assert memory_reason(with_settings(zero, nodes=2), host) is None
    assert memory_reason(fsdp, host) is None
    small = replace(host, host_memory_bytes=50e9)
    assert "needs about 59.8 GiB of host memory, of 46.6 GiB: " in str(memory_reason(fsdp, small))
    assert memory_reason(zero, replace(host, host_memory_bytes=None)) is None


def test_under_adapters_the_host_has_their_states_alone() -> None:
    """Rank 8 on two projections of 4096 to 4096 and 1024, in 32 layers; frozen weights where they leave the GPU."""
    adapters = 32 * 8 * (8192 + 5120)
    lora = {"lora_rank": 8, "lora_targets": "query_value", "data_parallel": 2}
    zero = training_point("llama-3.1-8b", strategy="deepspeed", zero_stage=3, offload_optimizer=True, **lora)
    whole = with_settings(zero, offload_parameters=True)
    fsdp = training_point("llama-3.1-8b", strategy="fsdp", cpu_offload=True, **lora)
    frozen = 2 * 8_029_995_008  # all matrices
    expected = (16 * adapters, 16 * adapters + frozen, 8 * adapters + frozen)
    for point_, num_bytes in zip((zero, whole, fsdp), expected, strict=True):
        assert isinstance(point_.settings, Train)
        assert point_.shape is not None
        assert host_bytes(point_.settings, point_.shape) == num_bytes


@pytest.mark.parametrize(
    ("options", "num_bytes"),
    [
        ({}, 8 * 8_029_995_008),
        ({"optimizer": "sgd"}, 4 * 8_029_995_008),
        ({"data_parallel": 4, "nodes": 2}, 8 * 8_029_995_008),
        # Each of two hosts has all of it.
        ({"data_parallel": 4, "nodes": 2, "hybrid_shard": True}, 2 * 8 * 8_029_995_008),
    ],
)
def test_fsdp_on_the_host_needs_what_its_optimizer_keeps(options: dict[str, Any], num_bytes: int) -> None:
    """All hosts together: weight and gradient of 2 bytes, and AdamW's two states."""
    offloaded = training_point("llama-3.1-8b", strategy="fsdp", cpu_offload=True, **{"data_parallel": 2, **options})
    assert isinstance(offloaded.settings, Train)
    assert offloaded.shape is not None
    assert host_bytes(offloaded.settings, offloaded.shape) == num_bytes


def test_frozen_weights_of_four_bits_stay_packed_on_the_host() -> None:
    """0.516 bytes of 6.98e9 weights in layers, 2 of embedding and head."""
    options = {"lora_rank": 8, "weights": "nf4", "cpu_offload": True, "data_parallel": 2}
    packed = training_point("llama-3.1-8b", strategy="fsdp", **options)
    assert isinstance(packed.settings, Train)
    assert packed.shape is not None
    assert host_bytes(packed.settings, packed.shape) == pytest.approx(5.7e9, rel=0.01)


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({"strategy": "fsdp"}, 2 * 6.979e9),
        ({"strategy": "torchtune"}, 2 * 6.979e9),
        ({"strategy": "fsdp", "lora_rank": 8, "weights": "nf4"}, 0.516 * 6.979e9),
    ],
)
def test_weights_that_stay_whole_from_forward_to_backward_are_counted(options: dict[str, Any], layers: float) -> None:
    """Of all 32 layers, where else no layer is beside the logits."""
    usual = {"data_parallel": 8, "activation_checkpointing": "full", "sequence_tokens": 4096}
    usual |= {"max_grad_norm": 1.0, **options}
    again, whole = (
        memory_need(training_point("llama-3.1-8b", reshard_after_forward=value, **usual)) for value in (True, False)
    )
    assert again is not None
    assert whole is not None
    assert whole.num_bytes - again.num_bytes == pytest.approx(layers, rel=0.01)


@pytest.mark.parametrize("strategy", ["ddp", "torchtune", "unsloth"])
def test_inputs_of_recomputed_layers_in_host_memory_are_not_counted(strategy: str) -> None:
    """Of 65,536 tokens they would be 17.2 GB of the GPU's. Unsloth has them there in any case."""
    usual = {"strategy": strategy, "lora_rank": 8, "batch_size_per_gpu": 16, "sequence_tokens": 4096}
    options = {} if strategy == "unsloth" else {"activation_offload": True}
    offloaded = memory_need(training_point("llama-3.1-8b", activation_checkpointing="full", **usual, **options))
    assert offloaded is not None
    assert offloaded.is_least
    kept = memory_need(training_point("llama-3.1-8b", activation_checkpointing="full", **{**usual, "strategy": "ddp"}))
    assert kept is not None
    assert kept.num_bytes - offloaded.num_bytes >= 65_536 * 64 * 4096


def decoding(**options: Any) -> Point:
    usual = {"lora_rank": 8, "batch_size_per_gpu": 8, "sequence_tokens": 4096, "activation_checkpointing": "full"}
    usual |= {"evaluation_every_steps": 100, "evaluation_method": "generation"}
    return training_point("llama-3.1-8b", **usual, **options)


def test_keys_and_values_of_an_evaluations_beams_are_counted() -> None:
    """8 samples of 4096 tokens of 131,072 bytes for each beam, beside 16 GB of weights; of one beam a step needs more.

    The remedies are those that the suite's rules allow: answers are decoded from logits, which chunks leave out.
    """
    one, many = memory_need(decoding()), memory_need(decoding(evaluation_beams=32))
    assert one is not None
    assert many is not None
    assert many.num_bytes == pytest.approx(2 * 8.03e9 + 32 * 8 * 4096 * 131_072, rel=1e-3)
    assert one.num_bytes < 0.6 * many.num_bytes
    reason = str(gpu_reason(decoding(evaluation_beams=32), A100))
    assert ": fits with batch_size_per_gpu = 1 or evaluation_beams = 1" in reason
    assert "loss_chunk_tokens" not in str(gpu_reason(decoding(), 50e9))


def test_a_change_that_breaks_a_rule_is_no_remedy() -> None:
    """FSDP's parts are no tensors that bitsandbytes takes."""
    ddp = training_point("llama-3.1-8b", data_parallel=8)
    assert "strategy = 'fsdp'" in str(gpu_reason(ddp, 30e9))
    assert "strategy = 'fsdp'" not in str(gpu_reason(with_settings(ddp, optimizer="adamw_8bit"), 30e9))


def turn(model: str = "llama-3.1-8b", **options: Any) -> Point:
    sizes = {"topology": "shared", "batch_size": 8, "prompt_tokens": 512, "output_tokens": 256, "sleep_level": 0}
    usual: dict[str, Any] = {"backend": "vllm", "model": model, "activation_checkpointing": "full", **sizes}
    return point(Turn(**{**usual, **options}), model)


def test_a_share_that_leaves_no_room_for_the_trainer_is_refused() -> None:
    """By hand: 8 bytes of 8.03e9 weights and 1.3 GiB of a pass, of 0.1 of 140.4 GiB; the share named leaves 0.45."""
    assert gpu_reason(turn(), H200) == (
        "trainer needs at least 61.1 GiB a GPU, of 14 GiB beside the engine's 126 GiB (gpu_memory_utilization 0.9 of "
        "140 GiB): fits with sleep_level = 1 or gpu_memory_utilization = 0.55 or a smaller model"
    )
    # 0.6 leaves 56.2 GiB, within a tenth of what is estimated; 0.65 leaves 49.1.
    assert gpu_reason(turn(gpu_memory_utilization=0.6), H200) is None
    assert gpu_reason(turn(gpu_memory_utilization=0.65), H200) is not None
    assert gpu_reason(turn(sleep_level=1), H200) is None
    assert gpu_reason(turn(engine_args={"kv_cache_memory_bytes": 10**9}), H200) is None


def test_a_policys_loss_makes_all_logits_on_every_rank() -> None:
    """8192 tokens, 12 bytes of 128,256 logits each, beside the inputs of 32 layers.

    Four ranks that split the logits need most in the first layer instead: gradients, but the embedding's, beside what
    that layer has in backward of its second norm.
    """
    split = {"topology": "full", "tensor_parallel": 4, "strategy": "tensor_parallel", "train_tensor_parallel": 4}
    options: dict[str, Any] = {
        **split,
        "sleep_level": 1,
        "batch_size": 16,
        "batch_size_per_gpu": 16,
        "prompt_tokens": 256,
    }
    usual, policy = (
        memory_need(turn(**options, loss=loss, group_size=size))
        for loss, size in (("cross_entropy", None), ("grpo", 8))
    )
    assert usual is not None
    assert policy is not None
    held = 525e6 + 7.505e9 / 4
    second_norm = 4096 * (7 * 4 + 3 * 2) + (4 * 5120 + 128) / 4
    first_layer = 2 * held * (1 - 525e6 / 8.03e9) + 8192 * second_norm
    passing = 8192 * (12 * 128_256 + 2 * 32 * 4096)
    assert policy.num_bytes - usual.num_bytes == pytest.approx(passing - first_layer, rel=1e-3)


def test_a_share_that_holds_no_engine_is_refused() -> None:
    """14.96 GiB of weights and 0.1 of cache, of 0.1 of 140.4 GiB, whether the engine sleeps or not."""
    reason = str(gpu_reason(turn(gpu_memory_utilization=0.1, sleep_level=1), H200))
    assert reason.startswith(
        "engine needs at least 15.1 GiB a GPU for weights and the cache of a sequence, of 14 GiB ("
    )
    assert reason.endswith(": fits with gpu_memory_utilization = 0.9 or a smaller model")
    full: dict[str, Any] = {"topology": "full", "strategy": "fsdp", "tensor_parallel": 2}
    assert gpu_reason(turn(gpu_memory_utilization=0.1, sleep_level=1, **full), H200) is None
    assert str(gpu_reason(turn(gpu_memory_utilization=0.05, sleep_level=1, **full), H200)).endswith(
        "or more GPUs or a smaller model"
    )


def test_what_a_turns_trainer_can_change_is_named() -> None:
    """On each of four GPUs several passes hold whole gradients of 32.8e9 weights, one pass of its 8 sequences a part.

    Of 16 sequences logits are 17.6 GiB beside 15 of weights, and what layers keep more than is there.
    """
    several = turn("qwen3-32b", topology="full", strategy="fsdp", tensor_parallel=4, batch_size=32, sleep_level=2)
    assert str(gpu_reason(several, 90e9)).endswith(", of 83.8 GiB: may fit with batch_size_per_gpu = 8")
    adapters: dict[str, Any] = {"lora_rank": 8, "sleep_level": 1, "batch_size": 16, "batch_size_per_gpu": 16}
    assert str(gpu_reason(turn(**adapters, activation_checkpointing=None), 48e9)).endswith(
        ": may fit with batch_size_per_gpu = 1 or activation_checkpointing = 'full'"
    )
    assert str(gpu_reason(turn(sleep_level=0, gpu_memory_utilization=0.4), 48e9)).endswith(
        ": take more GPUs, a smaller model or a strategy that splits it"
    )


def test_a_trainer_that_no_share_leaves_room_for() -> None:
    """64 GB of weights, gradients and moments on 48 GB: no matter of shares, at whichever level."""
    for level in (0, 1):
        assert str(gpu_reason(turn(sleep_level=level), 48e9)).startswith("needs at least ")
