"""From axes to points, and why some can't run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.core import feasibility
from pybench.core.plan import Required, expand, left_out_list, parse_required
from pybench.model.backend import BACKENDS, BackendTraits
from pybench.model.errors import UsageError
from pybench.model.machine import Devices
from pybench.model.suite import AxisValue, Benchmark, Effort, Plan, Suite
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.registry import settings_from_json
from pybench.model.workloads.settings import BackendName, WorkloadName
from pybench.model.workloads.train import Train
from pybench.run.events.contract import ordered_replica
from tests.api import suite_of
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.plan.expand")

SHAPE = {
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "intermediate_size": 126,
    "num_hidden_layers": 2,
    "vocab_size": 96,
    "max_position_embeddings": 32,
}
GENERATE = {"backend": "torch", "model": "m", "batch_size": 6, "prompt_tokens": 8, "output_tokens": 4}
TRAIN = {"backend": "torch", "model": "m", "sequence_tokens": 8, "global_batch_size": 6}


def _suite(workload: WorkloadName, settings: dict[str, Any], **axes: tuple[AxisValue, ...]) -> Suite:
    fixed = {key: value for key, value in settings.items() if key not in axes}
    benchmark = Benchmark(name="b", workload=workload, settings=fixed, axes=axes, effort=Effort())
    return suite_of(benchmark)


def _reason(workload: WorkloadName, settings: dict[str, Any]) -> str | None:
    made = expand(_suite(workload, settings), {"m": SHAPE}, Devices("cuda", 64))
    return made.skips[0].reason if made.skips else None


def test_order_and_ids() -> None:
    """The last axis turns fastest; without axes the id is the benchmark's name."""
    suite = _suite("generate", GENERATE, seed=(1, 2), tensor_parallel=(1, 2))
    made = expand(suite, {"m": SHAPE}, Devices("cpu", 2))
    assert [point.id for point in made.points] == [
        "b[seed=1,tensor_parallel=1]",
        "b[seed=1,tensor_parallel=2]",
        "b[seed=2,tensor_parallel=1]",
        "b[seed=2,tensor_parallel=2]",
    ]
    assert expand(_suite("train", TRAIN), {"m": SHAPE}, Devices("cpu", 1)).points[0].id == "b"


def test_what_the_machine_lacks_is_left_out_and_named_once() -> None:
    """Two points of 8 GPUs and one backend for GPUs, on 4 GPUs and on a CPU."""
    suite = _suite("generate", GENERATE, seed=(1, 2), tensor_parallel=(1, 8))
    made = expand(suite, {"m": SHAPE}, Devices("cuda", 4))
    assert (len(made.points), made.skips) == (2, ())
    assert [skip.reason for skip in made.left_out] == ["left out: 8 GPUs (4 here)"] * 2
    assert left_out_list(made) == ("8 GPUs (4 here)",)
    engine = expand(_suite("generate", GENERATE | {"backend": "vllm"}), {"m": SHAPE}, Devices("cpu", 4))
    assert left_out_list(engine) == ("vllm (needs GPUs)",)


@pytest.mark.parametrize(
    ("benchmark", "text", "missing"),
    [(False, None, False), (True, None, True), (False, "gpus=2", True), (False, "gpus=1", False)],
)
def test_who_needs_it_says_so(benchmark: bool, text: str | None, missing: bool) -> None:
    """In the suite, or on the command line: then it is missing, not left out."""
    suite = _suite("generate", GENERATE, tensor_parallel=(1, 2))
    suite = replace(suite, benchmarks=tuple(replace(b, required=benchmark) for b in suite.benchmarks))
    made = expand(suite, {"m": SHAPE}, Devices("cuda", 1), required=parse_required(text))
    assert (len(made.skips), len(made.left_out)) == ((1, 0) if missing else (0, 1))


def test_a_required_backend_requires_no_gpus() -> None:
    """On one GPU its point of one is planned, that of two is left out; with both required it is missing."""
    suite = _suite("generate", GENERATE | {"backend": "vllm"}, tensor_parallel=(1, 2))
    for text, left_out, skipped in (("backend=vllm", [2], []), ("backend=vllm,gpus=2", [], [2])):
        made = expand(suite, {"m": SHAPE}, Devices("cuda", 1), required=parse_required(text))
        assert [point.num_gpus for point in made.points] == [1]
        assert [skip.num_gpus for skip in made.left_out] == left_out
        assert [skip.num_gpus for skip in made.skips] == skipped


def test_requirements_of_the_command_line() -> None:
    """Counts and backends; a typo is one line."""
    assert parse_required("gpus=8,backend=vllm, backend=torch") == Required(8, frozenset({"vllm", "torch"}))
    assert parse_required(None) == Required()
    assert parse_required("table") == Required(table=True)
    for wrong in ("gpus=0", "backend=vlm", "gpu=8", "8", ","):
        with pytest.raises(UsageError, match=r"--require: found .*, valid: table, gpus=N, nodes=N or backend=NAME"):
            parse_required(wrong)


def test_skipped_left_out_and_filtered() -> None:
    """Too few devices and the user's limit leave a point out, the filter drops it."""
    suite = _suite("generate", GENERATE, tensor_parallel=(1, 2))
    cpu = expand(suite, {"m": SHAPE}, Devices("cpu", 1))
    assert [skip.reason for skip in cpu.left_out] == [SENTENCES["skipped_left_out_and_filtered"]]
    none = expand(suite, {"m": SHAPE}, Devices("cuda", 0))
    assert [skip.lacks for skip in none.left_out] == ["1 GPU (0 here)", "2 GPUs (0 here)"]
    limited = expand(suite, {"m": SHAPE}, Devices("cuda", 8), max_gpus=1)
    assert [skip.reason for skip in limited.left_out] == ["left out by --max-gpus 1"]
    assert limited.skips == ()
    assert expand(suite, {"m": SHAPE}, Devices("cuda", 8), keep=lambda _: False).points == ()


@pytest.mark.parametrize(
    ("workload", "change", "reason"),
    [
        ("generate", {}, None),
        ("generate", {"tensor_parallel": 4}, "2 key-value heads, 126 intermediate units of m can't be split over"),
        ("generate", {"tensor_parallel": 8}, "4 attention heads, 2 key-value heads, 126 intermediate units of m"),
        ("generate", {"tensor_parallel": 3}, "64 hidden units of m can't be split over tensor_parallel 3"),
        ("generate", {"tensor_parallel": 4}, "126 intermediate units of m can't be split over tensor_parallel 4"),
        (
            "generate",
            {"pipeline_parallel": 2},
            "torch can't generate with pipeline_parallel 2, only with tensor_parallel and data_parallel above 1",
        ),
        ("generate", {"data_parallel": 4}, "6 samples in a step can't be split over data_parallel 4"),
        ("generate", {"pipeline_parallel": 3}, "2 layers of m are fewer than pipeline_parallel 3"),
        ("generate", {"prompt_tokens": 30}, "34 tokens in a sequence exceed the 32 positions of m"),
        ("train", {"sequence_tokens": 33}, "33 tokens in a sequence exceed the 32 positions of m"),
        (
            "train",
            {"global_batch_size": 5, "data_parallel": 2},
            "5 samples in a step can't be split over data_parallel 2",
        ),
        ("generate", {"data_parallel": 2}, None),
        ("generate", {"quantization": "fp8"}, "backend torch has no quantization"),
        ("generate", {"engine_args": {"a": 1}}, "backend torch has no engine_args"),
        ("generate", {"backend": "vllm", "engine_args": {"a": 1}, "concurrency": 2}, None),
        (
            "generate",
            {"max_context_tokens": 32},
            "backend torch has no max_context_tokens, only vllm, tensorrt_llm and server",
        ),
        ("generate", {"backend": "vllm", "max_context_tokens": 32}, None),
        (
            "generate",
            {"backend": "vllm", "max_context_tokens": 33},
            "33 tokens in a sequence exceed the 32 positions of m",
        ),
        (
            "generate",
            {"backend": "vllm", "max_context_tokens": 14, "length_spread_fraction": 0.5},
            "max_context_tokens 14 is less than the longest prompt and output: 18",
        ),
        ("generate", {"prefix_caching": True}, "backend torch has no prefix_caching"),
        ("generate", {"backend": "vllm", "shared_prefix_tokens": 8, "prefix_caching": True}, None),
        (
            "generate",
            {"backend": "vllm", "shared_prefix_tokens": 5, "length_spread_fraction": 0.5},
            "shared_prefix_tokens 5 is more than the shortest prompt has: 4",
        ),
        (
            "generate",
            {"backend": "vllm", "concurrency": 3, "data_parallel": 2},
            "concurrency 3 can't be split over data_parallel 2",
        ),
        (
            "generate",
            {"backend": "transformers", "tensor_parallel": 2, "pipeline_parallel": 2},
            "backend transformers has tensor_parallel alone, not with pipeline_parallel",
        ),
        ("evaluate", {"beams": 2}, "backend torch has no beams, only transformers"),
        ("evaluate", {"backend": "transformers", "beams": 2}, None),
        ("evaluate", {"backend": "transformers", "tensor_parallel": 2}, "only with data_parallel above 1"),
        ("train", {"global_batch_size": None, "batch_size_per_gpu": 5, "data_parallel": 2}, None),
    ],
)
def test_impossible(workload: WorkloadName, change: dict[str, Any], reason: str | None) -> None:
    """Each impossible shape is named with both numbers."""
    usual = {"generate": GENERATE, "train": TRAIN, "evaluate": {**GENERATE, "method": "generation"}}
    found = _reason(workload, {**usual[workload], **change})
    assert found is None if reason is None else found is not None and reason in found


def test_variables_of_a_benchmark_stay_on_one_node() -> None:
    """The other hosts' workers would be tuned otherwise."""
    settings = {**TRAIN, "data_parallel": 2, "nodes": 2, "environment": "NCCL_ALGO=Ring"}
    (skip,) = expand(_suite("train", settings), {"m": SHAPE}, Devices("cuda", 1, 2)).skips
    assert "environment reaches the workers of one node only" in skip.reason


@pytest.mark.parametrize("workload", ["collective", "peer_copy"])
def test_what_needs_others(workload: WorkloadName) -> None:
    """One GPU has nobody to talk to; two have."""
    assert _reason(workload, {"backend": "torch", "gpus": 1}) == SENTENCES["what_needs_others"]
    assert _reason(workload, {"backend": "torch", "gpus": 2}) is None
    assert _reason("matmul", {"backend": "torch", "gpus": 1}) is None


def test_a_vocabulary_must_divide_unless_the_engine_pads_it() -> None:
    """97 tokens over 2 ranks: refused in the plan for torch and transformers; vLLM and TensorRT-LLM pad them."""
    shape = {**SHAPE, "vocab_size": 97, "intermediate_size": 128}
    for backend in ("torch", "transformers", "vllm", "tensorrt_llm"):
        suite = _suite("generate", {**GENERATE, "backend": backend, "tensor_parallel": 2})
        skips = expand(suite, {"m": shape}, Devices("cuda", 2)).skips
        reasons = [skip.reason for skip in skips]
        refused = ["97 tokens in the vocabulary of m can't be split over tensor_parallel 2"]
        assert reasons == ([] if backend in {"vllm", "tensorrt_llm"} else refused)


def test_model_family_that_the_backend_cannot_build() -> None:
    """Named before anything starts, with those it can; a backend that can takes it."""
    shape, known = {**SHAPE, "model_type": "gemma2"}, "llama, mistral, qwen2, qwen3, gemma, gemma3_text, phi3, gpt_oss"
    refused = [f"backend torch can't build gemma2 models, only {known}"]
    for backend in ("torch", "transformers", "vllm"):
        suite = _suite("generate", {**GENERATE, "backend": backend}, tensor_parallel=(1,))
        skips = expand(suite, {"m": shape}, Devices("cuda", 1)).skips
        assert [skip.reason for skip in skips] == (refused if backend == "torch" else [])


@pytest.mark.parametrize(("family", "parts"), [("gpt_oss", "experts"), ("phi3", "fused projections")])
def test_what_tensor_parallel_cannot_split(family: str, parts: str) -> None:
    """Weights that are several in one; other backends have a way to split them."""
    for backend in ("torch", "vllm"):
        suite = _suite("generate", {**GENERATE, "backend": backend, "tensor_parallel": 2})
        skips = expand(suite, {"m": {**SHAPE, "model_type": family}}, Devices("cuda", 2)).skips
        refused = [f"backend torch can't split the {parts} of {family} over tensor_parallel ranks"]
        assert [skip.reason for skip in skips] == (refused if backend == "torch" else [])


def test_backend_without_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that lacks the workload is named."""
    traits = BackendTraits(model_types=("llama",), parallel_axes={"train": ()}, packages=())
    monkeypatch.setattr(feasibility, "BACKENDS", {"torch": traits})
    assert _reason("generate", GENERATE) == SENTENCES["backend_without_workload"]


@pytest.mark.parametrize("backend", ["vllm", "tensorrt_llm"])
def test_engines_need_gpus(backend: str) -> None:
    """A CPU would only tell after a minute."""
    suite = _suite("generate", {**GENERATE, "backend": backend}, tensor_parallel=(1,))
    (skip,) = expand(suite, {"m": SHAPE}, Devices("cpu", 8)).left_out
    assert skip.reason == f"left out: {backend} (needs GPUs)"
    required = parse_required(f"backend={backend}")
    (skip,) = expand(suite, {"m": SHAPE}, Devices("cpu", 8), required=required).skips
    assert skip.reason == f"backend {backend} runs on GPUs only"


def test_layers_are_spread_over_gpus() -> None:
    """A CPU is one device."""
    suite = _suite("generate", {**GENERATE, "backend": "transformers"}, pipeline_parallel=(1, 2))
    (skip,) = expand(suite, {"m": SHAPE}, Devices("cpu", 8)).skips
    assert skip.reason == SENTENCES["layers_are_spread_over_gpus"]


@pytest.mark.parametrize(("backend", "processes"), [("torch", 12), ("transformers", 6), ("vllm", 3)])
def test_processes_of_a_point(backend: BackendName, processes: int) -> None:
    """Two ranks in each of two stages of three copies: an engine spans all but the copies."""
    values: dict[str, Any] = {**GENERATE, "backend": backend}
    settings = Generate(**values, tensor_parallel=2, pipeline_parallel=2, data_parallel=3)
    assert BACKENDS[backend].num_processes(settings) == processes


def _over_nodes(num_hosts: int = 1, count: int = 2, **given: Any) -> Plan:
    suite = _suite("train", TRAIN, nodes=(1, 2), data_parallel=(2, 3))
    return expand(suite, {"m": SHAPE}, Devices("cuda", count, num_hosts), **given)


@pytest.mark.parametrize(
    ("backend", "degrees", "reason"),
    [
        ("vllm", {"tensor_parallel": 2}, None),
        ("vllm", {"data_parallel": 2}, None),
        ("vllm", {"data_parallel": 3, "tensor_parallel": 2}, "data_parallel 3 can't be spread over 2 nodes: give each"),
        ("torch", {"tensor_parallel": 2}, None),
        ("transformers", {"data_parallel": 2}, "backend transformers has generate on one node only"),
        ("tensorrt_llm", {"tensor_parallel": 2}, "backend tensorrt_llm has generate on one node only"),
    ],
)
def test_generation_over_nodes(backend: str, degrees: dict[str, int], reason: str | None) -> None:
    """Whole replicas on each node, or one replica on whole nodes, by the backends that can."""
    suite = _suite("generate", {**GENERATE, "backend": backend, "nodes": 2, **degrees})
    plan = expand(suite, {"m": SHAPE}, Devices("cuda", 8, 2))
    assert [skip.reason.startswith(reason or "-") for skip in plan.skips] == ([] if reason is None else [True])
    assert len(plan.points) == (reason is None)


@pytest.mark.parametrize(
    ("degrees", "processes"),
    [
        ({"tensor_parallel": 8}, 1),
        ({"tensor_parallel": 8, "nodes": 2}, 2),
        ({"pipeline_parallel": 2, "tensor_parallel": 8, "nodes": 2}, 2),
        ({"data_parallel": 4, "nodes": 2}, 4),
        ({"data_parallel": 2, "tensor_parallel": 8, "nodes": 4}, 4),
    ],
)
def test_an_engine_has_a_process_on_each_of_its_hosts(degrees: dict[str, int], processes: int) -> None:
    """A replica's first process drives it; ranks of one replica follow each other."""
    values: dict[str, Any] = {**GENERATE, "backend": "vllm", **degrees}
    settings = Generate(**values)
    assert BACKENDS["vllm"].num_processes(settings) == processes
    each = processes // settings.data_parallel
    assert [ordered_replica(settings, rank) for rank in range(processes)] == [r // each for r in range(processes)]


def test_points_over_nodes_need_as_many_hosts() -> None:
    """On one host they are left out by name; two hosts have twice its GPUs, as many on each."""
    alone, two = _over_nodes(), _over_nodes(num_hosts=2)
    assert [point.id for point in alone.points] == ["b[nodes=1,data_parallel=2]"]
    assert left_out_list(alone) == ("3 GPUs (2 here)", "2 nodes (1 here)")
    assert [point.id for point in two.points] == ["b[nodes=1,data_parallel=2]", "b[nodes=2,data_parallel=2]"]
    assert [point.settings.num_gpus_per_node for point in two.points] == [2, 1]
    (uneven,) = two.skips
    assert uneven.reason == SENTENCES["points_over_nodes_need_as_many_hosts"]
    small = _over_nodes(num_hosts=2, count=1)
    assert left_out_list(small)[-1] == SENTENCES["points_over_nodes_need_as_many_hosts_2"]


def test_what_is_planned_for_is_not_here() -> None:
    """A plan for another machine counts that one's GPUs and nodes."""
    suite = _suite("train", TRAIN, nodes=(1, 2), data_parallel=(2, 3))
    alone = expand(suite, {"m": SHAPE}, Devices("cuda", 2, assumed=True))
    assert left_out_list(alone) == ("3 GPUs (2 planned for)", "2 nodes (1 planned for)")
    two = expand(suite, {"m": SHAPE}, Devices("cuda", 1, 2, assumed=True))
    assert left_out_list(two)[-1] == SENTENCES["what_is_planned_for_is_not_here"]


def test_nodes_may_be_required() -> None:
    """A required point that the machine lacks is missing, not left out."""
    found = _over_nodes(required=parse_required("nodes=2"))
    assert [skip.lacks for skip in found.skips] == ["2 nodes (1 here)"] * 2
    assert found.skips[0].reason == "needs 2 nodes, found 1"


def test_a_point_of_one_node_is_the_same_with_and_without_the_setting() -> None:
    """Hosts do not change its digest, by which runs are compared."""
    plain = expand(_suite("train", TRAIN), {"m": SHAPE}, Devices("cpu", 1)).points[0]
    one = expand(_suite("train", {**TRAIN, "nodes": 1}), {"m": SHAPE}, Devices("cpu", 1)).points[0]
    assert one.digest == plain.digest
    assert isinstance(one.settings, Train)
    two = replace(one, settings=replace(one.settings, nodes=2))
    assert two.digest != plain.digest
    assert settings_from_json(two.settings.to_json()) == two.settings
