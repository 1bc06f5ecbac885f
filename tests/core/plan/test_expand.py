"""From axes to points, and why some can't run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.core import feasibility
from pybench.core.plan import Required, expand, left_out_list, parse_required
from pybench.files.shipped import load_models
from pybench.model.backend import BACKENDS, BackendTraits, replica_of
from pybench.model.errors import UsageError
from pybench.model.machine import Devices
from pybench.model.suite import AxisValue, Benchmark, Comparison, Effort, Plan, Skip, Suite
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.registry import settings_from_json
from pybench.model.workloads.settings import BackendName, WorkloadName
from pybench.model.workloads.train import Train
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
KNOWN = "gemma2 models, only llama, mistral, qwen2, qwen3, gemma, gemma3_text, phi3, gpt_oss"
TRAIN = {"backend": "torch", "model": "m", "sequence_tokens": 8, "global_batch_size": 6}
NODE = {workload: {"backend": "torch"} for workload in ("collective", "peer_copy", "matmul")}
USUAL: dict[str, dict[str, Any]] = {
    "generate": GENERATE,
    "train": TRAIN,
    "evaluate": {**GENERATE, "method": "generation"},
    **NODE,
}


def _suite(workload: WorkloadName, settings: dict[str, Any], **axes: tuple[AxisValue, ...]) -> Suite:
    fixed = {key: value for key, value in settings.items() if key not in axes}
    benchmark = Benchmark(name="b", workload=workload, settings=fixed, axes=axes, effort=Effort())
    return suite_of(benchmark)


def _skips(workload: WorkloadName, settings: dict[str, Any]) -> tuple[Skip, ...]:
    return expand(_suite(workload, settings), {"m": SHAPE}, Devices("cuda", 64)).skips


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
    assert [skip.kind for skip in made.left_out] == ["gpus"] * 2
    assert left_out_list(made) == ("8 GPUs (4 here)",)
    engine = expand(_suite("generate", GENERATE | {"backend": "vllm"}), {"m": SHAPE}, Devices("cpu", 4))
    assert left_out_list(engine) == ("vllm (needs GPUs)",)


@pytest.mark.parametrize(
    ("by_suite", "text", "missing"),
    [(False, None, False), (True, None, True), (False, "gpus=2", True), (False, "gpus=1", False)],
)
def test_who_needs_it_says_so(by_suite: bool, text: str | None, missing: bool) -> None:
    """In the suite, or on the command line: then it is missing, not left out."""
    suite = _suite("generate", GENERATE, tensor_parallel=(1, 2))
    suite = replace(suite, benchmarks=tuple(replace(b, required=by_suite) for b in suite.benchmarks))
    made = expand(suite, {"m": SHAPE}, Devices("cuda", 1), required=parse_required(text))
    assert (len(made.skips), len(made.left_out)) == ((1, 0) if missing else (0, 1))


def test_a_required_backend_requires_no_gpus() -> None:
    """On one GPU the plan has its point of one and leaves out that of two; with both required it is missing."""
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
    """A lack of devices and the user's limit leave a point out, the filter drops it."""
    suite = _suite("generate", GENERATE, tensor_parallel=(1, 2))
    cpu = expand(suite, {"m": SHAPE}, Devices("cpu", 1))
    assert [(skip.kind, skip.lacks) for skip in cpu.left_out] == [("gpus", "2 CPU cores (1 here)")]
    none = expand(suite, {"m": SHAPE}, Devices("cuda", 0))
    assert [skip.lacks for skip in none.left_out] == ["1 GPU (0 here)", "2 GPUs (0 here)"]
    limited = expand(suite, {"m": SHAPE}, Devices("cuda", 8), max_gpus=1)
    (skip,) = limited.left_out
    assert (skip.kind, skip.lacks, skip.reason) == ("max_gpus", "2 GPUs (--max-gpus 1)", SENTENCES["max_gpus"])
    assert limited.skips == ()
    assert expand(suite, {"m": SHAPE}, Devices("cuda", 8), keep=lambda _: False).points == ()


@pytest.mark.parametrize(
    ("claim", "keep", "left_out"),
    [
        (None, "a[", ["b[tensor_parallel=1]", "b[tensor_parallel=2]"]),
        (None, "a[tensor_parallel=2]", ["b[tensor_parallel=2]"]),
        (None, "b", []),
        (None, "[", []),
        ("a paper", "a[", []),
    ],
)
def test_what_a_kept_point_is_compared_with_is_left_out_by_name(
    claim: str | None, keep: str, left_out: list[str]
) -> None:
    """A claim judges nothing, and who leaves out the judged side itself wants no verdict."""
    above = Comparison(metric="tpot_s", order="above", other="b", claim=claim)
    settings = {key: value for key, value in GENERATE.items() if key != "tensor_parallel"}
    b = Benchmark(name="b", workload="generate", settings=settings, axes={"tensor_parallel": (1, 2)}, effort=Effort())
    suite = suite_of(replace(b, name="a", expectations=(above,)), b)
    plan = expand(suite, {"m": SHAPE}, Devices("cuda", 8), keep=lambda point_id: keep in point_id)
    assert [(skip.id, skip.kind) for skip in plan.left_out] == [(name, "filter") for name in left_out]
    assert left_out_list(plan) == (("b (-k)",) if left_out else ())


@pytest.mark.parametrize(
    ("workload", "change", "kind", "facts"),
    [
        (
            "generate",
            {"tensor_parallel": 8},
            "uneven",
            ("4 attention", "2 key-value", "126 inter", "tensor_parallel 8"),
        ),
        ("generate", {"tensor_parallel": 3}, "uneven", ("64 hidden", "tensor_parallel 3")),
        ("generate", {"tensor_parallel": 4}, "uneven", ("2 key-value", "126 inter", "tensor_parallel 4")),
        (
            "generate",
            {"pipeline_parallel": 2},
            "unsupported",
            ("torch", "pipeline_parallel 2", "tensor_parallel and data"),
        ),
        ("generate", {"backend": "vllm", "pipeline_parallel": 3}, "uneven", ("2 layers", "pipeline_parallel 3")),
        ("train", {"sequence_tokens": 33}, "length", ("33", "32")),
        ("train", {"global_batch_size": 5, "data_parallel": 2}, "uneven", ("5", "data_parallel 2")),
        ("generate", {"quantization": "fp8"}, "unsupported", ("torch", "quantization")),
        ("generate", {"engine_args": {"a": 1}}, "unsupported", ("torch", "engine_args")),
        (
            "generate",
            {"max_context_tokens": 32},
            "unsupported",
            ("max_context_tokens", "vllm, tensorrt_llm and server"),
        ),
        ("generate", {"backend": "vllm", "max_context_tokens": 33}, "length", ("33", "32")),
        (
            *("generate", {"backend": "vllm", "max_context_tokens": 14, "length_spread_fraction": 0.5}),
            *("length", ("max_context_tokens 14", "18")),
        ),
        ("generate", {"prefix_caching": True}, "unsupported", ("torch", "prefix_caching")),
        (
            *("generate", {"backend": "vllm", "shared_prefix_tokens": 5, "length_spread_fraction": 0.5}),
            *("length", ("shared_prefix_tokens 5", "4")),
        ),
        (
            "generate",
            {"backend": "vllm", "concurrency": 3, "data_parallel": 2},
            "uneven",
            ("concurrency 3", "parallel 2"),
        ),
        (
            *("generate", {"backend": "transformers", "tensor_parallel": 2, "pipeline_parallel": 2}),
            *("unsupported", ("transformers", "tensor_parallel alone", "pipeline_parallel")),
        ),
        ("evaluate", {"beams": 2}, "unsupported", ("torch", "beams", "transformers")),
        (
            "evaluate",
            {"backend": "transformers", "tensor_parallel": 2},
            "unsupported",
            ("tensor_parallel 2", "data_par"),
        ),
        ("collective", {"gpus": 1}, "gpus", ("2", "1")),
        ("peer_copy", {"gpus": 1}, "gpus", ("2", "1")),
    ],
)
def test_impossible(workload: WorkloadName, change: dict[str, Any], kind: str, facts: tuple[str, ...]) -> None:
    """Each impossible shape is named with both numbers; one GPU has nobody to talk to."""
    (skip,) = _skips(workload, {**USUAL[workload], **change})
    assert (skip.kind, [fact for fact in facts if fact not in skip.reason]) == (kind, [])


@pytest.mark.parametrize(
    ("workload", "change"),
    [
        ("generate", {}),
        ("generate", {"data_parallel": 2}),
        ("generate", {"backend": "vllm", "engine_args": {"a": 1}, "concurrency": 2}),
        ("generate", {"backend": "vllm", "max_context_tokens": 32}),
        ("generate", {"backend": "vllm", "shared_prefix_tokens": 8, "prefix_caching": True}),
        ("evaluate", {"backend": "transformers", "beams": 2}),
        ("train", {"global_batch_size": None, "batch_size_per_gpu": 5, "data_parallel": 2}),
        ("collective", {"gpus": 2}),
        ("peer_copy", {"gpus": 2}),
        ("matmul", {"gpus": 1}),
    ],
)
def test_possible(workload: WorkloadName, change: dict[str, Any]) -> None:
    """The nearest shapes that can run."""
    assert _skips(workload, {**USUAL[workload], **change}) == ()


@pytest.mark.parametrize(
    ("kind", "sentence", "there", "settings"),
    [
        ("gpus", SENTENCES["gpus"], Devices("cuda", 2), {**TRAIN, "data_parallel": 3}),
        ("nodes", SENTENCES["nodes"], Devices("cuda", 2), {**TRAIN, "nodes": 2, "data_parallel": 2}),
        ("device", SENTENCES["device"], Devices("cpu", 4), {**GENERATE, "backend": "vllm"}),
        ("unsupported", SENTENCES["unsupported"], Devices("cuda", 2), {**GENERATE, "pipeline_parallel": 2}),
        ("number_type", SENTENCES["number_type"], Devices("cuda", 1, compute_capability=(7, 0)), GENERATE),
        ("uneven", SENTENCES["uneven"], Devices("cuda", 4), {**TRAIN, "data_parallel": 4}),
        ("length", SENTENCES["length"], Devices("cuda", 1), {**GENERATE, "prompt_tokens": 30}),
        # The other hosts' workers would be tuned otherwise.
        (
            *("settings", SENTENCES["settings"], Devices("cuda", 1, 2)),
            {**TRAIN, "data_parallel": 2, "nodes": 2, "environment": "NCCL_ALGO=Ring"},
        ),
        ("memory", SENTENCES["memory"], Devices("cuda", 1, memory_bytes=150.75e9), {**TRAIN, "model": "gpt-oss-20b"}),
    ],
)
def test_each_kind_has_its_sentence(kind: str, sentence: str, there: Devices, settings: dict[str, Any]) -> None:
    """Of a point that is required: one left out has the missing part instead."""
    (benchmark,) = _suite("generate" if "output_tokens" in settings else "train", settings).benchmarks
    (skip,) = expand(suite_of(replace(benchmark, required=True)), {**load_models(), "m": SHAPE}, there).skips
    assert (skip.kind, skip.reason) == (kind, sentence)


@pytest.mark.parametrize(
    ("change", "degree", "refused", "refusing", "able"),
    [
        ({"vocab_size": 97}, 2, ("uneven", "97 tokens"), ["torch", "transformers"], ["vllm", "tensorrt_llm"]),
        ({"model_type": "gemma2"}, 1, ("unsupported", KNOWN), ["torch"], ["transformers", "vllm"]),
        ({"model_type": "gpt_oss"}, 2, ("unsupported", "experts of gpt_oss"), ["torch"], ["vllm"]),
        ({"model_type": "phi3"}, 2, ("unsupported", "fused projections of phi3"), ["torch"], ["vllm"]),
    ],
)
def test_a_model_that_a_backend_cannot_build_or_split(
    change: dict[str, Any], degree: int, refused: tuple[str, str], refusing: list[str], able: list[str]
) -> None:
    """Named before anything starts. The engines pad a vocabulary, and have a way to split weights that are several."""
    kind, fact = refused
    for backend in (*refusing, *able):
        suite = _suite("generate", {**GENERATE, "backend": backend, "tensor_parallel": degree})
        skips = expand(suite, {"m": {**SHAPE, **change}}, Devices("cuda", 2)).skips
        assert [(skip.kind, fact in skip.reason) for skip in skips] == [(kind, True)] * (backend in refusing)


def test_backend_without_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that lacks the workload is named."""
    traits = BackendTraits(model_types=("llama",), parallel_axes={"train": ()}, packages=())
    monkeypatch.setattr(feasibility, "BACKENDS", {"torch": traits})
    (skip,) = _skips("generate", GENERATE)
    assert (skip.kind, "torch" in skip.reason, "generate" in skip.reason) == ("unsupported", True, True)


@pytest.mark.parametrize("backend", ["vllm", "tensorrt_llm"])
def test_engines_need_gpus(backend: str) -> None:
    """A CPU would only tell after a minute."""
    suite = _suite("generate", {**GENERATE, "backend": backend}, tensor_parallel=(1,))
    (skip,) = expand(suite, {"m": SHAPE}, Devices("cpu", 8)).left_out
    assert (skip.kind, skip.lacks) == ("device", f"{backend} (needs GPUs)")
    required = parse_required(f"backend={backend}")
    (skip,) = expand(suite, {"m": SHAPE}, Devices("cpu", 8), required=required).skips
    assert (skip.kind, backend in skip.reason) == ("device", True)


def test_layers_are_spread_over_gpus() -> None:
    """A CPU is one device."""
    suite = _suite("generate", {**GENERATE, "backend": "transformers"}, pipeline_parallel=(1, 2))
    (skip,) = expand(suite, {"m": SHAPE}, Devices("cpu", 8)).skips
    assert (skip.kind, "pipeline_parallel" in skip.reason) == ("device", True)


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
    ("backend", "degrees", "refused"),
    [
        ("vllm", {"tensor_parallel": 2}, []),
        ("vllm", {"data_parallel": 2}, []),
        ("vllm", {"data_parallel": 3, "tensor_parallel": 2}, [("uneven", "data_parallel 3")]),
        ("torch", {"tensor_parallel": 2}, []),
        ("transformers", {"data_parallel": 2}, [("unsupported", "backend transformers")]),
        ("tensorrt_llm", {"tensor_parallel": 2}, [("unsupported", "backend tensorrt_llm")]),
    ],
)
def test_generation_over_nodes(backend: str, degrees: dict[str, int], refused: list[tuple[str, str]]) -> None:
    """Whole replicas on each node, or one replica on whole nodes, by the backends that can."""
    suite = _suite("generate", {**GENERATE, "backend": backend, "nodes": 2, **degrees})
    plan = expand(suite, {"m": SHAPE}, Devices("cuda", 8, 2))
    assert [(skip.kind, " ".join(skip.reason.split()[:2])) for skip in plan.skips] == refused
    assert len(plan.points) == (not refused)


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
    assert [replica_of(settings, rank) for rank in range(processes)] == [r // each for r in range(processes)]


def test_points_over_nodes_need_as_many_hosts() -> None:
    """One host leaves them out by name; two hosts have twice its GPUs, half of them each."""
    alone, two = _over_nodes(), _over_nodes(num_hosts=2)
    assert [point.id for point in alone.points] == ["b[nodes=1,data_parallel=2]"]
    assert left_out_list(alone) == ("3 GPUs (2 here)", "2 nodes (1 here)")
    assert [point.id for point in two.points] == ["b[nodes=1,data_parallel=2]", "b[nodes=2,data_parallel=2]"]
    assert [point.settings.num_gpus_per_node for point in two.points] == [2, 1]
    (uneven,) = two.skips
    assert (uneven.kind, uneven.num_gpus) == ("uneven", 3)
    small = _over_nodes(num_hosts=2, count=1)
    assert left_out_list(small)[-1] == "2 GPUs on each node (1 here)"


def test_what_is_planned_for_is_not_here() -> None:
    """A plan for another machine counts that one's GPUs and nodes."""
    suite = _suite("train", TRAIN, nodes=(1, 2), data_parallel=(2, 3))
    alone = expand(suite, {"m": SHAPE}, Devices("cuda", 2, assumed=True))
    assert left_out_list(alone) == ("3 GPUs (2 planned for)", "2 nodes (1 planned for)")
    two = expand(suite, {"m": SHAPE}, Devices("cuda", 1, 2, assumed=True))
    assert left_out_list(two)[-1] == "2 GPUs on each node (1 planned for)"


def test_nodes_may_be_required() -> None:
    """A required point that the machine lacks is missing, not left out."""
    found = _over_nodes(required=parse_required("nodes=2"))
    assert [(skip.kind, skip.lacks) for skip in found.skips] == [("nodes", "2 nodes (1 here)")] * 2


def test_a_point_of_one_node_is_the_same_with_and_without_the_setting() -> None:
    """Hosts do not change its digest, the key of a comparison."""
    plain = expand(_suite("train", TRAIN), {"m": SHAPE}, Devices("cpu", 1)).points[0]
    one = expand(_suite("train", {**TRAIN, "nodes": 1}), {"m": SHAPE}, Devices("cpu", 1)).points[0]
    assert one.digest == plain.digest
    assert isinstance(one.settings, Train)
    two = replace(one, settings=replace(one.settings, nodes=2))
    assert two.digest != plain.digest
    assert settings_from_json(two.settings.to_json()) == two.settings
