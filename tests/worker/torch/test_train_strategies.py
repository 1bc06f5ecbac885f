"""However the ranks share the work, the model must learn the same: losses of three steps against a lone rank's."""

from __future__ import annotations

import dataclasses
import json
import os
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("accelerate")
pytest.importorskip("bitsandbytes")
import torch
from bitsandbytes.nn.modules import Params4bit
from torch.nn import functional

from pybench.core.loss_curve import loss_checks
from pybench.core.measurements import Measurements
from pybench.model.decoder_shape import DecoderShape
from pybench.model.suite import Plan
from pybench.model.wire import Work
from pybench.model.workloads.stage_layers import stage_layers
from pybench.model.workloads.train_rules import STRATEGIES
from pybench.worker.backends.common_torch.process_group import TorchRanks
from pybench.worker.backends.torch.train.learner import Task
from pybench.worker.backends.torch.train.model import trainable_model
from pybench.worker.backends.torch.train.strategies import ddp
from tests.build import Build
from tests.worker.torch.conftest import Start
from tests.worker.torch.train_ranks import FAMILY_SHAPES, GPT_OSS, NUM_STEPS, TINY, settings_of, trained

Spec = dict[str, Any]
CPU = torch.device("cpu")
TWO_LAYERS = {"num_hidden_layers": 2}
"""Half of the usual ones, which take half of the time, where no stage or window needs more."""
QWEN3, MISTRAL, PHI3 = ({**FAMILY_SHAPES[family], **TWO_LAYERS} for family in ("qwen3", "mistral", "phi3"))
GEMMA3 = FAMILY_SHAPES["gemma3_text"]
SCALED_LLAMA = {
    "max_position_embeddings": 16384,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}
DDP = {"data_parallel": 2}
BUCKETS = {**DDP, "gradient_as_bucket_view": True}
FSDP = {"strategy": "fsdp", "data_parallel": 2}
TP = {"strategy": "tensor_parallel", "tensor_parallel": 2}
SHALLOW: Spec = {"architecture": TWO_LAYERS}
PP = {"strategy": "pipeline_parallel", "pipeline_parallel": 2}
CP = {"strategy": "context_parallel", "context_parallel": 2}
NORM = {"optimizer": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.3}
QLORA = {"lora_rank": 4, "lora_targets": "all_linear", "weights": "nf4"}
# torchao packs 16,384 weights at once.
WIDE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
# A head of nearly two layers' work: by their work two ranks have three and one of four layers, or four and two of six.
UNEVEN: Spec = {"architecture": {"vocab_size": 1024}}
UNEVEN_TURNS: Spec = {"architecture": {"vocab_size": 1024, "num_hidden_layers": 6}}
INTERLEAVED = {"schedule": "interleaved_1f1b", "stages_per_rank": 2, "microbatches": 2}
BIASED: Spec = {"architecture": {**TWO_LAYERS, "attention_bias": True, "mlp_bias": True}, "learning_rate": 3e-2}
BROUGHT = ("deepspeed", "torchtune", "unsloth")
"""Strategies of packages that are not installed with the others."""
ALONE: dict[str, Spec] = {
    "ddp": {},
    "passes": {"grad_accum": 4},
    "plain_adamw": {"fused_adamw": False},
    "chunks": {"loss_chunk_tokens": 100},
    "checkpointing": {"activation_checkpointing": "full"},
    "selective": {"activation_checkpointing": "selective"},
    **{name: {"strategy": name} for name in STRATEGIES if name not in {"ddp", *BROUGHT}},
}
DECODED: Spec = {
    "evaluation_every_steps": 200,
    "evaluation_method": "generation",
    "evaluation_output_tokens": 2,
}
EXPERTS: dict[str, Spec] = {
    "ddp": DDP,
    "fsdp": {**FSDP, "activation_checkpointing": "full"},
    "accelerate": {"strategy": "accelerate", **DDP},
    "context": CP,
    "layer_split": {"strategy": "layer_split", "pipeline_parallel": 2},
    "pipeline": {**PP, "microbatches": 4},
    "lora_ddp": {**DDP, "lora_rank": 4, "lora_targets": "attention"},
    "lora_fsdp": {**FSDP, "lora_rank": 4, "lora_targets": "attention", "loss_chunk_tokens": 64},
}
WINDOWS: dict[str, Spec] = {"fsdp": FSDP, "tensor": TP, "context": CP, "pipeline": PP}
TWO: dict[str, Spec] = {
    "ddp": {**DDP, "control_steps": 2},
    "ddp_passes": {**DDP, "grad_accum": 2, "find_unused_parameters": True},
    "ddp_buckets": {**BUCKETS, "bucket_cap_mb": 1},
    "ddp_bucket_passes": {**BUCKETS, "bucket_cap_mb": 1, "grad_accum": 4, "control_steps": 2},
    "ddp_bucket_control": {**BUCKETS, "control_steps": 2},
    "ddp_chunks": {**DDP, "loss_chunk_tokens": 64, "broadcast_buffers": False},
    "fsdp": {**FSDP, "control_steps": 2},
    "fsdp_passes": {**FSDP, **SHALLOW, **DECODED, "grad_accum": 2, "reshard_after_forward": False},
    "fsdp_chunks": {
        **FSDP,
        **SHALLOW,
        "loss_chunk_tokens": 64,
        "reshard_after_forward": True,
        "activation_checkpointing": "full",
    },
    "fsdp_offload": {**FSDP, **SHALLOW, "cpu_offload": True, "activation_checkpointing": "selective"},
    "fsdp_gemma": {**FSDP, "architecture": GEMMA3},
    "lora_ddp": {**DDP, "lora_rank": 4},
    "lora_fsdp": {**FSDP, "lora_rank": 4},
    "lora_fsdp_phi": {**FSDP, "lora_rank": 4, "lora_targets": "all_linear", "architecture": PHI3},
    "lora_accelerate": {"strategy": "accelerate", **DDP, "lora_rank": 4},
    "qlora_ddp": {**DDP, **SHALLOW, **QLORA},
    "qlora_fsdp": {**FSDP, **QLORA, "control_steps": 2},
    "qlora_accelerate": {"strategy": "accelerate", **DDP, **SHALLOW, **QLORA},
    "accelerate": {"strategy": "accelerate", **DDP, "grad_accum": 2, "control_steps": 2},
    "tensor": TP,
    "tensor_qwen": {**TP, "architecture": QWEN3},
    "sequence": {**TP, **SHALLOW, "sequence_parallel": True, "activation_checkpointing": "full"},
    "sequence_qwen": {**TP, "sequence_parallel": True, "architecture": QWEN3},
    "tensor_selective": {**TP, **SHALLOW, "activation_checkpointing": "selective"},
    "sequence_selective": {**TP, **SHALLOW, "sequence_parallel": True, "activation_checkpointing": "selective"},
    "tensor_biased": {**TP, **BIASED, "grad_accum": 2},
    "sequence_biased": {**TP, **BIASED, "sequence_parallel": True},
    "tensor_uneven_vocabulary": {**TP, "architecture": {**TWO_LAYERS, "vocab_size": 255}},
    "sequence_passes": {**TP, **SHALLOW, "sequence_parallel": True, "grad_accum": 2, "max_grad_norm": 0.3},
    "context": CP,
    "context_gemma": {**CP, "architecture": GEMMA3},
    "layer_split": {"strategy": "layer_split", "pipeline_parallel": 2},
    "gpipe": {**PP, "schedule": "gpipe", "microbatches": 4},
    "1f1b": {**PP, "schedule": "1f1b", "microbatches": 4, "activation_checkpointing": "full"},
    "1f1b_phi": {**PP, "microbatches": 2, "architecture": PHI3},
    "interleaved": {**PP, **INTERLEAVED, "grad_accum": 2},
    "1f1b_uneven": {**PP, **UNEVEN, "microbatches": 4},
    "interleaved_uneven": {**PP, **INTERLEAVED, **UNEVEN_TURNS},
    "layer_split_of_uneven_work": {**UNEVEN, "strategy": "layer_split", "pipeline_parallel": 2},
    **{f"{name}_experts": {**spec, "architecture": GPT_OSS} for name, spec in EXPERTS.items()},
    **{f"{name}_mistral": {**spec, "architecture": MISTRAL} for name, spec in WINDOWS.items()},
    # Last: what is broken stays so.
    "broken": {**DDP, "broken": True},
    "broken_lora": {**DDP, "broken": True, "lora_rank": 4},
}
FOUR: dict[str, Spec] = {
    "ddp": {"data_parallel": 4},
    "fsdp_tensor": {**FSDP, **TP, "strategy": "fsdp"},
    "fsdp_context": {**FSDP, **CP, "strategy": "fsdp", "architecture": GEMMA3},
    "fsdp_tensor_norm": {**FSDP, **TP, **SHALLOW, **NORM, "strategy": "fsdp"},
    "fsdp_sequence": {**FSDP, **TP, **SHALLOW, "strategy": "fsdp", "sequence_parallel": True, "grad_accum": 2},
    "fsdp_tensor_chunks": {**FSDP, **TP, **SHALLOW, "strategy": "fsdp", "loss_chunk_tokens": 64},
    "fsdp_sequence_chunks": {
        **FSDP,
        **TP,
        **SHALLOW,
        "strategy": "fsdp",
        "sequence_parallel": True,
        "loss_chunk_tokens": 64,
        "activation_checkpointing": "full",
    },
    "hsdp": {**SHALLOW, "strategy": "fsdp", "data_parallel": 4, "nodes": 2, "hybrid_shard": True, "control_steps": 2},
    "hsdp_of_one_gpu_each": {
        **SHALLOW,
        "strategy": "fsdp",
        "data_parallel": 4,
        "nodes": 4,
        "hybrid_shard": True,
        "grad_accum": 2,
    },
    "hsdp_tensor": {**FSDP, **TP, **SHALLOW, "strategy": "fsdp", "nodes": 2, "hybrid_shard": True},
    "ddp_pipeline": {**PP, "data_parallel": 2, "microbatches": 2},
    "ddp_interleaved": {**PP, "data_parallel": 2, **INTERLEAVED},
    "ddp_pipeline_uneven": {**PP, **UNEVEN, "data_parallel": 2, "microbatches": 2},
}
# What changes the model or its numbers; everything else is only another way to the same.
SHAPING = ("architecture", "lora_rank", "lora_targets", "weights", "optimizer", "learning_rate", "max_grad_norm")


@pytest.fixture(scope="module")
def two(start: Start, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The results of two ranks, by spec."""
    found = start(2, list(TWO.values()), tmp_path_factory.mktemp("two") / "found")
    return dict(zip(TWO, map(list, zip(*found, strict=True)), strict=True))


@pytest.fixture(scope="module")
def four(start: Start, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The results of four ranks, by spec."""
    found = start(4, list(FOUR.values()), tmp_path_factory.mktemp("four") / "found")
    return dict(zip(FOUR, map(list, zip(*found, strict=True)), strict=True))


@pytest.fixture(scope="module")
def alone() -> Any:
    """Losses of a lone rank, each spec trained once."""
    known: dict[str, list[float]] = {}

    def losses(spec: Spec) -> list[float]:
        name = json.dumps(spec, sort_keys=True)
        if name not in known:
            known[name] = trained(spec, TorchRanks(0, 1, CPU))["losses"]
        return known[name]

    return losses


def shape(spec: Spec) -> Spec:
    return {key: value for key, value in spec.items() if key in SHAPING}


@pytest.mark.parametrize("name", ALONE)
def test_a_lone_rank_learns_the_same_by_every_strategy(alone: Any, name: str) -> None:
    """The baseline of each strategy's scaling is the same training."""
    assert alone(ALONE[name]) == pytest.approx(alone({}), rel=1e-4)


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in BROUGHT])
def test_a_lone_rank_attends_without_a_mask(monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    """Causal attention computes half of what masked attention does: a slow baseline makes every speedup look good."""
    masks, attention = [], functional.scaled_dot_product_attention

    def spy(*given: Any, **options: Any) -> torch.Tensor:
        masks.append((options["attn_mask"], options["is_causal"]))
        return attention(*given, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", spy)
    trained({"strategy": strategy}, TorchRanks(0, 1, CPU))
    assert set(masks) == {(None, True)}


@pytest.mark.parametrize("name", [name for name in TWO if not TWO[name].get("broken")])
def test_two_ranks_learn_as_one_does(two: Any, alone: Any, name: str) -> None:
    """Every rank reports the loss of the whole batch, not of its part."""
    expected = alone(shape(TWO[name]))
    assert expected[-1] < expected[0] - 0.05, "a loss that does not move shows nothing"
    for found in two[name]:
        assert found["losses"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("spec", "layers"),
    [
        (TWO["1f1b_uneven"], (3, 1)),
        (TWO["interleaved_uneven"], (2, 1, 2, 1)),
        (TWO["layer_split_of_uneven_work"], (2, 2)),
        (FOUR["ddp_pipeline_uneven"], (3, 1)),
        (TWO["1f1b"], (2, 2)),
    ],
)
def test_stages_of_these_trainings(spec: Spec, layers: tuple[int, ...]) -> None:
    """That they learn the same is shown of uneven cuts, too."""
    options = {key: value for key, value in spec.items() if key != "architecture"}
    shape = DecoderShape.from_config({**TINY, **spec.get("architecture", {})})
    assert stage_layers(settings_of(options), shape) == layers


@pytest.mark.parametrize("name", FOUR)
def test_four_ranks_learn_as_one_does(four: Any, alone: Any, name: str) -> None:
    """Two kinds of parallelism over one mesh."""
    for found in four[name]:
        assert found["losses"] == pytest.approx(alone(shape(FOUR[name])), rel=1e-4)


@pytest.mark.parametrize(
    ("name", "verdict"), [("broken", "fail"), ("broken_lora", "fail"), ("ddp", "pass"), ("lora_ddp", "pass")]
)
def test_copies_that_learn_alone_are_seen(two: Any, alone: Any, name: str, verdict: str) -> None:
    """Without averaged gradients the judge sees it, also of adapters, whose loss moves little."""
    spec, build, steps = TWO[name], Build(), Build().steps([1.0], Work(samples=8))
    settings = settings_of({"lora_rank": spec.get("lora_rank")})
    points = [dataclasses.replace(build.train(count), settings=settings) for count in (1, 2)]
    curves = [alone(shape(spec)), two[name][0]["losses"]]
    ranks = [dataclasses.replace(build.rank(steps), losses=tuple(curve)) for curve in curves]
    records = [build.record(point, (rank,)) for point, rank in zip(points, ranks, strict=True)]
    (row,) = loss_checks(Measurements.of(Plan(points=tuple(points), skips=()), records))
    assert row.verdict == verdict
    assert curves[0][0] == pytest.approx(curves[1][0], rel=1e-4), "curves must differ by training, not from the start"


def test_gradients_stay_in_their_buckets_where_passes_add_up(two: Any) -> None:
    """New gradients of a pass without exchange would double their memory. One pass drops them."""
    for found in two["ddp_bucket_passes"]:
        first, *later = found["kept_gradients"]
        assert first
        assert later == [first] * NUM_STEPS, (
            "the first step has the buckets of all others, before there are optimizer states"
        )
    for name in ("ddp_buckets", "ddp_passes", "ddp_chunks"):
        assert two[name][0]["kept_gradients"] == [[]] * (NUM_STEPS + 1)


@pytest.mark.parametrize(("library", "expected"), [("nccl", ["barrier", "barrier"]), ("gloo", [])])
def test_nccl_waits_for_the_release_of_the_first_exchange(
    monkeypatch: pytest.MonkeyPatch, library: str, expected: list[str]
) -> None:
    """Other libraries hold nothing."""

    class Ranks(TorchRanks):
        def barrier(self) -> None:
            events.append("barrier")

    events: list[str] = []
    monkeypatch.setattr(ddp, "_WATCHDOG_ROUNDS_S", 0)
    monkeypatch.setattr("torch.distributed.get_backend", lambda: library)
    ddp.release_first_bucket(Ranks(0, 2, CPU))
    assert events == expected
    ddp.release_first_bucket(Ranks(0, 1, CPU))
    assert events == expected, "a lone rank has no other to wait for"


@pytest.mark.parametrize("name", ["ddp", "ddp_passes", "ddp_bucket_passes", "context", "accelerate"])
def test_the_first_exchange_alone_is_followed_by_its_release(two: Any, name: str) -> None:
    """In the step that has it: steps behind it may be measured ones."""
    assert [found["released_in"] for found in two[name]] == [[0], [0]]
    assert two["fsdp"][0]["released_in"] == []


def test_control_steps_have_no_gradients_beside_their_buckets(two: Any) -> None:
    """Steps with and without exchange differ by nothing else."""
    for found in two["ddp_bucket_control"]:
        *measured, controlled = found["kept_gradients"]
        assert measured == [[]] * NUM_STEPS
        assert len(controlled) == 1, "the model's one bucket"


@pytest.mark.parametrize("name", ["ddp", "fsdp", "accelerate", "ddp_bucket_passes", "ddp_bucket_control"])
def test_control_steps_tell_the_exposed_communication(two: Any, name: str) -> None:
    """A part of the step, the same on both ranks."""
    first, second = (found["metrics"] for found in two[name])
    for metric in ("exposed_communication_fraction", "straggler_gap_fraction"):
        assert first[metric] >= 0
    assert first["exposed_communication_fraction"] < 1
    assert first["straggler_gap_fraction"] == second["straggler_gap_fraction"]
    assert "exposed_communication_fraction" not in two["tensor"][0]["metrics"]


def test_an_update_in_host_memory_reports_its_threads(two: Any) -> None:
    """Each of two ranks has half of the cores, where the optimizer is on the host."""
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    assert [found["metrics"]["host_update_threads"] for found in two["fsdp_offload"]] == [threads] * 2
    assert "host_update_threads" not in two["fsdp"][0]["metrics"]


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        *((name, "two") for name in ("ddp", "fsdp", "accelerate", "tensor", "layer_split", "interleaved")),
        *((name, "two") for name in ("lora_ddp", "lora_fsdp", "qlora_fsdp")),
        *((name, "four") for name in ("fsdp_tensor", "ddp_pipeline", "ddp_interleaved")),
    ],
)
def test_trained_parameters_are_those_of_the_whole_model(request: pytest.FixtureRequest, name: str, ranks: str) -> None:
    """By hand, on every rank: four layers of 64 x 64, 32 x 64 and 128 x 64, two ends of 256 x 64, nine norms of 64.

    Adapters of rank 4 have 4 for each input and output: of query and value by default, of all seven otherwise.
    """
    whole = 4 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64) + 2 * 256 * 64 + 9 * 64
    query_value = 4 * 4 * ((64 + 64) + (64 + 32))
    every = 4 * 4 * (2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 128))
    expected = query_value if name.startswith("lora") else every if name.startswith("qlora") else whole
    for found in request.getfixturevalue(ranks)[name]:
        assert found["metrics"]["trained_parameters"] == expected


@pytest.mark.parametrize(("name", "ranks"), [("gpipe", "two"), ("interleaved", "two"), ("ddp_pipeline", "four")])
def test_stages_compute_for_a_part_of_each_step(request: pytest.FixtureRequest, name: str, ranks: str) -> None:
    """Of the last step alone. The other strategies have no stages to report."""
    for found in request.getfixturevalue(ranks)[name]:
        assert 0 < found["values"]["stage_busy_s"] < found["values"]["step_s"]
    assert "stage_busy_s" not in request.getfixturevalue("two")["ddp"][0]["values"]


def test_ranks_whose_weights_are_split_decode_with_beams(two: Any) -> None:
    """Each gathers the weights in every pass: both come to an end, and have trained as before."""
    assert all(found["metrics"]["evaluation_s"] > 0 for found in two["fsdp_passes"])
    assert "evaluation_s" not in two["fsdp"][0]["metrics"]


def test_mixed_precision_stays_near(start: Start, two: Any, alone: Any, tmp_path: Path) -> None:
    """bfloat16 computing over float32 weights: within the tolerance of its type, and not float32 in disguise.

    FSDP's control steps keep their gradients to themselves: there is nothing to clip.
    """
    mixed: Spec = {"mixed_precision": "bfloat16", "control_steps": 1, "max_grad_norm": 1000.0}
    specs = [{**FSDP, **mixed}, {"strategy": "accelerate", **DDP, **mixed}]
    for found in start(2, specs, tmp_path / "found")[0]:
        assert found["losses"] == pytest.approx(alone({}), rel=2e-2)
        assert found["losses"] != pytest.approx(two["ddp"][0]["losses"], rel=1e-5)


def test_four_bits_stay_near(alone: Any) -> None:
    """QLoRA's rounding shows in the loss, by less than a step of training moves it."""
    slow = {**QLORA, "learning_rate": 1e-2}
    rounded, whole = alone(slow), alone({key: value for key, value in slow.items() if key != "weights"})
    assert rounded == pytest.approx(whole, rel=2e-3)
    assert rounded != pytest.approx(whole, rel=1e-5)


def test_projections_alone_are_packed() -> None:
    """By hand: 64 blocks of 64 weights, half a byte each; all ranks pack the same bits."""
    packs = []
    for _ in range(2):
        task = Task(settings_of(QLORA), TINY, TorchRanks(0, 1, CPU))
        model, weights = trainable_model(task)
        weights.fill()
        packs.append({name: one for name, one in model.named_parameters() if isinstance(one, Params4bit)})
        assert model.lm_head.weight.dtype == torch.float32
    first = packs[0]
    assert len(first) == 7 * TINY["num_hidden_layers"]
    assert first["model.layers.0.self_attn.q_proj.base_layer.weight"].nbytes == 64 * 64 // 2
    assert not any(one.requires_grad for one in first.values())
    bits = [{name: bytes(one.data.view(torch.uint8).numpy()) for name, one in pack.items()} for pack in packs]
    assert bits[0] == bits[1]


def test_compiled_layers_learn_the_same(start: Start, alone: Any, tmp_path: Path) -> None:
    """One compilation serves all layers."""
    [[found]] = start(1, [{"compile": True}], tmp_path / "found")
    assert found["losses"] == pytest.approx(alone({}), rel=1e-4)


def test_compiled_split_layers_learn_the_same(start: Start, alone: Any, tmp_path: Path) -> None:
    """With whole norms, and along the sequence, where the embedding's collective would still be under way.

    Layers are traced as for inductor, and their kernels are torch's own: generated code is the test's above.
    """
    compiled = {**TP, "compile": True, "compiler": "aot_eager"}
    along = {**compiled, "sequence_parallel": True, "activation_checkpointing": "full"}
    for found in start(2, [compiled, along], tmp_path / "found"):
        assert [one["losses"] for one in found] == [pytest.approx(alone({}), rel=1e-4)] * 2


def test_deepspeed_learns_the_same(start: Start, alone: Any, tmp_path: Path) -> None:
    """All stages, passes and offloading; its own defaults (gradients clipped at 1) must not show."""
    pytest.importorskip("deepspeed")
    zero: Spec = {"strategy": "deepspeed", **DDP}
    specs = [
        {**zero, "zero_stage": 1},
        {**zero, "zero_stage": 2, "grad_accum": 2, "offload_optimizer": True},
        {**zero, "zero_stage": 3, "offload_parameters": True},
        {**zero, "lora_rank": 4},
    ]
    for spec, found in zip(specs, start(2, specs, tmp_path / "found")[0], strict=True):
        assert found["losses"] == pytest.approx(alone(shape(spec)), rel=1e-4)


@pytest.mark.skipif(find_spec("torchtune") is None, reason="torchtune is not installed")
def test_torchtune_learns_the_same(start: Start, alone: Any, tmp_path: Path) -> None:
    """Its decoders hold our weights: sharded, split, both; with each kind of positions, and biases."""
    tune: Spec = {"strategy": "torchtune"}
    specs = [
        {**tune, **DDP, "control_steps": 2},
        {**tune, **DDP, "grad_accum": 2, "reshard_after_forward": False, "activation_checkpointing": "full"},
        {**tune, **DDP, "architecture": SCALED_LLAMA},
        {**tune, "tensor_parallel": 2},
        {**tune, "tensor_parallel": 2, "architecture": {"model_type": "qwen2"}},
    ]
    for spec, one in zip(specs, start(2, specs, tmp_path / "two")[0], strict=True):
        assert one["losses"] == pytest.approx(alone(shape(spec)), rel=1e-4)
    both = {**tune, "data_parallel": 2, "tensor_parallel": 2}
    for [found] in start(4, [both], tmp_path / "four"):
        assert found["losses"] == pytest.approx(alone({}), rel=1e-4)


@pytest.mark.skipif(find_spec("torchtune") is None, reason="torchtune is not installed")
def test_torchtune_offloads_by_its_own_code(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its context, with a CPU in the place of the GPU: the losses stay, and layers' inputs leave; the logits stay."""
    own = import_module("torchtune.training._activation_offloading")

    kept: list[int] = []
    copies = torch.empty_like
    to = torch.Tensor.to

    def copied(tensor: torch.Tensor, **options: Any) -> torch.Tensor:
        kept.append(tensor.numel())
        return copies(tensor, **options)

    monkeypatch.setattr(own.torch.cuda, "default_stream", lambda: None)
    monkeypatch.setattr(own.torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(own, "OffloadActivations", partial(own.OffloadActivations, False, False))
    monkeypatch.setattr(own.torch, "empty_like", copied)
    monkeypatch.setattr(torch.Tensor, "to", lambda one, *a, **kw: one if a == ("cuda",) else to(one, *a, **kw))
    tune: Spec = {"strategy": "torchtune", "activation_checkpointing": "full", "activation_offload": True}
    assert trained(tune, TorchRanks(0, 1, CPU))["losses"] == pytest.approx(alone({}), rel=1e-4)
    # Each step has 8 samples with 16 tokens of width 64; the logits would be 8 x 16 x 256.
    assert kept.count(8 * 16 * 64) >= NUM_STEPS * TINY["num_hidden_layers"]
    assert 8 * 16 * 256 not in kept


@pytest.mark.skipif(find_spec("unsloth") is None, reason="unsloth is not installed")
def test_unsloth_learns_the_same(start: Start, alone: Any, tmp_path: Path) -> None:
    """Adapters, over four bits too, and all weights, over DDP; on a CPU by its fallback to the library's own layers."""
    fast: Spec = {"strategy": "unsloth", **DDP}
    others = ("mistral", "gemma", "gemma3_text", "phi3")
    ways: tuple[Spec, ...] = ({}, QLORA, {"lora_rank": 4, "activation_checkpointing": "full"})
    specs = [
        {**fast, "lora_rank": 4, "control_steps": 2},
        {**fast, "lora_rank": 4, "activation_checkpointing": "full"},
        {**fast, "grad_accum": 2},
        {**fast, **QLORA, "control_steps": 2},
        {**fast, **QLORA, "lora_targets": "query_value", "activation_checkpointing": "full"},
        *({**fast, **options, "architecture": FAMILY_SHAPES[name]} for name in others for options in ways),
    ]
    for spec, found in zip(specs, start(2, specs, tmp_path / "found")[0], strict=True):
        assert found["losses"] == pytest.approx(alone(shape(spec)), rel=1e-4)
