"""The tensorrt_llm backend against a stand-in with recorded names, through the staged worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pybench.core.feasibility import generate_reasons
from pybench.model.servers import server_config, server_reasons
from pybench.model.wire import Event, Failure, Metric, Step
from pybench.model.workloads.generate import Generate
from pybench.worker.backends.engine import config_folder
from pybench.worker.backends.tensorrt_llm.translation import (
    Iterations,
    cache_arguments,
    engine_arguments,
    graph_arguments,
)
from tests.worker.conftest import RunEngine, points_of, steps_of

HERE = Path(__file__).parent
RECORDED = HERE / "recorded/tensorrt_llm-1.x.json"

RunTensorrt = Callable[..., tuple[int, list[list[Event]], str]]


def settings(**more: Any) -> Generate:
    sizes = {"batch_size": 4, "prompt_tokens": 6, "output_tokens": 5}
    return Generate(**{"backend": "tensorrt_llm", "model": "tiny", **sizes, **more})


def num_warmup_steps(events: list[Event]) -> int:
    return sum(isinstance(event, Step) and event.phase == "warmup" for event in events)


@pytest.fixture
def run_tensorrt(run_engine: RunEngine) -> RunTensorrt:
    """Run an order with TensorRT-LLM's stand-in."""
    return partial(run_engine, HERE / "fakes/tensorrt_llm.py", RECORDED)


def test_a_batch_keeps_the_engines_differences(run_tensorrt: RunTensorrt, tmp_path: Path) -> None:
    """The engine's clock is another; the worker waits for it once, at the end."""
    code, [events], log = run_tensorrt(settings(tensor_parallel=2))
    assert code == 0, log
    steps = steps_of(events)
    for step in steps:
        for times in step.requests:
            assert times.last_token_ns - times.arrival_ns < 60e9
        assert step.values == {"num_running": 2.0, "num_preemptions": 1.0}
    waits = [0.0] * (len(steps) + num_warmup_steps(events)) + [2.0]
    assert f"shut down, waited {waits}" in (tmp_path / "stdout").read_text()


def test_a_pipelines_batches_run_together(run_tensorrt: RunTensorrt) -> None:
    """Two stages, each with another batch of one sequence: two run, of the four that are active."""
    code, [events], log = run_tensorrt(settings(pipeline_parallel=2))
    assert code == 0, log
    assert [step.values["num_running"] for step in steps_of(events)] == [2.0, 2.0]


def test_an_engine_stays_for_points_of_another_load(run_tensorrt: RunTensorrt, tmp_path: Path) -> None:
    """A batch, then two requests at a time. The memory at that time may be the batch's, so the peak is unknown."""
    code, [events], log = run_tensorrt(settings(), then=(settings(batch_size=2, concurrency=1),))
    assert code == 0, log
    assert (tmp_path / "stdout").read_text().count("shut down, ") == 1
    first, second = points_of(events)
    assert [[step.work.samples for step in steps_of(each)] for each in (first, second)] == [[4, 4], [2, 2]]
    told = [{event.name: event.value for event in each if isinstance(event, Metric)} for each in (first, second)]
    assert told[0] == {"peak_memory_bytes": 7 * 2**30, "kv_cache_tokens": 3200, "num_runnable": 3}
    assert told[1] == {"kv_cache_tokens": 3200, "num_runnable": 1}


def test_prefixes_are_found_within_a_step_alone(run_tensorrt: RunTensorrt) -> None:
    """4 prompts of 6 tokens share 4: blocks of 2 save 3 * 2 of 12 blocks in every step.

    The next point's prompts share nothing, and an engine that caches nothing reports no share.
    """
    first, second = (settings(prefix_caching=True, **more) for more in ({"shared_prefix_tokens": 4}, {"batch_size": 2}))
    code, [events], log = run_tensorrt(first, then=(second,))
    assert code == 0, log
    hits = [[step.values["prefix_hit_fraction"] for step in steps_of(each)] for each in points_of(events)]
    assert hits == [[0.5, 0.5], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("given", "behaviour", "cause", "message"),
    [
        (
            {},
            "out-of-memory",
            "out_of_memory",
            "TensorRT-LLM's worker did not start: RuntimeError: Executor creation failed due to insufficient GPU",
        ),
        (
            {"engine_args": {"kv_cache_config": {"dtype": "fp8"}}},
            "",
            "unsupported",
            "engine_args.kv_cache_config: pybench sets it itself; set the benchmark's gpu_memory_utilization instead",
        ),
        ({"prefix_caching": True}, "no-salt", "unsupported", "prefix_caching needs a newer TensorRT-LLM, whose"),
        ({}, "fails-at-start", "engine", "TensorRT-LLM's worker did not start: ValueError: the shape makes no sense"),
        (
            {},
            "dies-at-start",
            "engine",
            "TensorRT-LLM's worker did not start: RuntimeError: Executor worker died during initialization",
        ),
        ({}, "step-fails", "engine", "TensorRT-LLM's worker failed at work: NCCL error: unhandled system error"),
        ({}, "step-out-of-memory", "out_of_memory", "TensorRT-LLM's worker failed at work: CUDA out of memory."),
        ({}, "dies-at-work", "engine", "TensorRT-LLM's worker died at work: RuntimeError: MPI worker exited"),
        ({}, "no-times", "engine", "TensorRT-LLM kept no times of a request: it needs 1.0 or newer"),
    ],
)
def test_what_goes_wrong_has_its_cause(
    run_tensorrt: RunTensorrt, given: dict[str, Any], behaviour: str, cause: str, message: str
) -> None:
    """One failure event."""
    code, [events], _ = run_tensorrt(settings(**given), behaviour)
    failure = events[-1]
    assert isinstance(failure, Failure)
    assert (code, failure.cause) == (1, cause)
    assert failure.message.startswith(message)


def test_settings_in_the_librarys_words(tmp_path: Path) -> None:
    """Every name is a recorded one."""
    classes = json.loads(RECORDED.read_text())
    recorded = set(classes["LLM"]["__init__"])
    order = settings(tensor_parallel=2, pipeline_parallel=3, max_num_seqs=8, enforce_eager=True)
    arguments = engine_arguments(order, tmp_path)
    assert arguments.keys() <= recorded
    assert (arguments["tensor_parallel_size"], arguments["pipeline_parallel_size"]) == (2, 3)
    assert arguments["max_batch_size"] == 8
    assert arguments["load_format"] == "dummy"
    assert engine_arguments(settings(max_context_tokens=32), tmp_path)["max_seq_len"] == 32
    assert engine_arguments(settings(), tmp_path).keys().isdisjoint({"max_batch_size", "max_num_tokens"})
    cache = cache_arguments(settings(gpu_memory_utilization=0.5))
    assert cache.keys() <= set(classes["KvCacheConfig"]["__init__"])
    assert (cache["free_gpu_memory_fraction"], cache["enable_block_reuse"]) == (0.5, False)
    assert cache_arguments(settings(prefix_caching=True))["enable_block_reuse"] is True


def test_arguments_have_the_types_of_1_2_1(tmp_path: Path) -> None:
    """Arguments of the backend and of the server's file have the types of the image's schema."""
    types = json.loads(RECORDED.read_text())["LLM"]["types"]
    plain = {"string": str, "boolean": bool, "integer": int, "integer | None": int, "Literal['auto', 'dummy']": str}
    plain |= {"CudaGraphConfig | None": dict, "KvCacheConfig": dict}
    long = settings(prompt_tokens=16384, max_num_seqs=8, server="trtllm", prefix_caching=True)
    file = json.loads(server_config(long) or "")
    for arguments in (engine_arguments(long, tmp_path), file):
        assert [name for name, value in arguments.items() if type(value) is not plain[types[name]]] == []
    for name, fields in (("cuda_graph_config", "CudaGraphConfig"), ("kv_cache_config", "KvCacheConfig")):
        assert file[name].keys() <= set(json.loads(RECORDED.read_text())[fields]["__init__"])


def test_quantisation_is_in_the_models_folder(
    run_tensorrt: RunTensorrt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The PyTorch backend has no argument for FP8 and four bits; NF4 is not there."""
    assert "quant_config" not in json.loads(RECORDED.read_text())["LLM"]["__init__"]
    code, _, log = run_tensorrt(settings(quantization="fp8"))
    assert code == 0, log
    monkeypatch.chdir(tmp_path)
    for value, algorithm, group_size in (("fp8", "FP8", None), ("awq", "W4A16_AWQ", 128)):
        with config_folder({"model_type": "llama"}, "bfloat16", value) as folder:
            layers = json.loads((folder / "hf_quant_config.json").read_text())["quantization"]
        assert (layers["quant_algo"], layers.get("group_size")) == (algorithm, group_size)
        assert not list(generate_reasons(settings(quantization=value), "cuda"))
    ((kind, text),) = generate_reasons(settings(quantization="bitsandbytes"), "cuda")
    assert (kind, text.endswith("only fp8, awq")) == ("unsupported", True)
    assert not list(server_reasons(settings(backend="server", server="trtllm", quantization="fp8"), "cuda"))


def test_graphs_cover_every_batch() -> None:
    """Padded to the next size, up to the most sequences at a time; the suite may give others, or none."""
    recorded = set(json.loads(RECORDED.read_text())["CudaGraphConfig"]["__init__"])
    assert graph_arguments(settings()) == {"enable_padding": True, "max_batch_size": 256}
    assert (graph_arguments(settings()) or {}).keys() <= recorded
    assert graph_arguments(settings(max_num_seqs=8)) == {"enable_padding": True, "max_batch_size": 8}
    given = {"enable_padding": True, "batch_sizes": [1, 512]}
    assert graph_arguments(settings(engine_args={"cuda_graph_config": given})) == given
    assert graph_arguments(settings(enforce_eager=True)) is None


def test_long_prompts_fit(tmp_path: Path) -> None:
    """Above the library's 8,192 tokens the limit is the longest sequence, unless the suite says otherwise."""
    long = {"prompt_tokens": 16384, "output_tokens": 5}
    assert engine_arguments(settings(**long), tmp_path)["max_num_tokens"] == 16389
    chunked = settings(**long, engine_args={"enable_chunked_prefill": True})
    assert "max_num_tokens" not in engine_arguments(chunked, tmp_path)


class Read(dict[str, Any]):
    """Keeps the names that were asked for."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def test_every_name_that_is_read_was_recorded() -> None:
    """Figures of an iteration, its batch and its cache."""
    recorded = json.loads(RECORDED.read_text())["IterationStats"]
    batch, cache = Read(numScheduledRequests=1), Read(maxNumBlocks=1)
    one = Read(numActiveRequests=1, inflightBatchingStats=batch, kvCacheStats=cache)
    Iterations(caches_prefixes=True).take([one])
    for read, names in ((one, "fields"), (batch, "inflightBatchingStats"), (cache, "kvCacheStats")):
        assert read.names
        assert read.names <= set(recorded[names])


def test_an_engine_that_tells_nothing_is_unknown() -> None:
    """Not zero."""
    iterations = Iterations()
    assert iterations.take([]) == {}
    assert iterations.take([{"numActiveRequests": 0}]) == {}
    assert iterations.metrics(None) == ()
    assert [metric.value for metric in iterations.metrics(4)] == [4]


def test_blocks_found_are_counted_from_step_to_step() -> None:
    """Computed by hand: 3 of 4, then 1 of 2. Counts of a point before, or none at all, leave the share unknown."""
    one = {"numActiveRequests": 1, "inflightBatchingStats": {"numScheduledRequests": 1}}
    counts = [{"reusedBlocks": 3, "missedBlocks": 1}, {"reusedBlocks": 4, "missedBlocks": 2}]
    for first, hits in ((True, [0.75, 0.5]), (False, [None, 0.5])):
        iterations = Iterations(tell_memory=first, caches_prefixes=True)
        found = [iterations.take([{**one, "kvCacheStats": count}]) for count in counts]
        assert [each.get("prefix_hit_fraction") for each in found] == hits
    for stats, caches in (({}, True), (counts[0], False)):
        assert "prefix_hit_fraction" not in Iterations(caches_prefixes=caches).take([{**one, "kvCacheStats": stats}])


def test_batches_without_numbers_leave_a_pipelines_sequences_unknown() -> None:
    """Each iteration tells of one stage's batch only."""
    batch = {"numScheduledRequests": 2, "numPausedRequests": 0, "microBatchId": 0}
    stats = [{"numActiveRequests": 4, "inflightBatchingStats": batch}] * 2
    assert Iterations(num_stages=2).take(stats) == {"num_preemptions": 0.0}
    assert Iterations().take(stats) == {"num_preemptions": 0.0, "num_running": 2.0}
