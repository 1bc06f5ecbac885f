"""The vllm backend against a stand-in with the recorded names of vLLM 0.20.2, through the staged worker."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pybench.model.wire import Event, Failure, Header, Metric
from pybench.model.workloads.generate import Generate
from pybench.worker.backends.vllm.translation import Iterations, engine_arguments
from tests.builders import TINY
from tests.golden_sentences import sentences_of
from tests.worker.conftest import RunEngine, points_of, steps_of

SENTENCES = sentences_of("worker.vllm")

HERE = Path(__file__).parent
RECORDED = HERE / "recorded/vllm-0.20.2.json"
SIZES: dict[str, Any] = {"batch_size": 4, "prompt_tokens": 6, "output_tokens": 5}

MIXTURE = {**TINY, "model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2}

RunVllm = Callable[..., tuple[int, list[list[Event]], str]]


def settings(**more: Any) -> Generate:
    return Generate(**{"backend": "vllm", "model": "tiny", **SIZES, **more})


@pytest.fixture
def run_vllm(run_engine: RunEngine, warm_python: Path) -> RunVllm:
    """Run an order with vLLM's stand-in, in a worker that begins with torch imported."""
    return partial(run_engine, HERE / "fakes/vllm.py", RECORDED, python=warm_python)


@pytest.fixture
def run_cold_vllm(run_engine: RunEngine) -> RunVllm:
    """The same, by a Python that has imported nothing."""
    return partial(run_engine, HERE / "fakes/vllm.py", RECORDED)


def metrics_of(events: list[Event]) -> dict[str, float]:
    return {event.name: event.value for event in events if isinstance(event, Metric)}


def wait_until_gone(pid: int) -> None:
    """The kernel takes its time between a kill and the end."""
    try:
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.05)
    except (FileNotFoundError, ProcessLookupError):
        return


def test_a_batch_lies_within_its_steps(run_cold_vllm: RunVllm) -> None:
    """4 requests of 6 and 5 tokens on two GPUs: a time for each round, and each request ends within its step."""
    code, [events], log = run_cold_vllm(settings(tensor_parallel=2))
    assert code == 0, log
    header = events[0]
    assert isinstance(header, Header)
    assert (header.device_name, header.replica) == ("NVIDIA H200", 0)
    assert header.device_uuid == header.all_uuids[0]
    for step in steps_of(events):
        assert len(step.token_end_ns) == 5
        for times in step.requests:
            assert times.last_token_ns <= step.end_ns
            assert (times.prompt_tokens, times.output_tokens) == (6, 5)
        assert step.values["itl_p50_s"] > 0


@pytest.mark.parametrize("architecture", [MIXTURE])
@pytest.mark.parametrize("own", [{}, {"concurrency": 2}])
def test_a_mixtures_experts_are_spread_before_the_first_step(
    run_vllm: RunVllm, tmp_path: Path, own: dict[str, int]
) -> None:
    """Once, by the seed; a batch and a server."""
    code, [events], log = run_vllm(settings(seed=5, **own))
    assert code == 0, log
    assert (tmp_path / "stdout").read_text().count("experts spread by seed 5") == 1
    assert steps_of(events)


@pytest.mark.parametrize("architecture", [MIXTURE])
def test_a_mixture_whose_routers_are_not_found_is_not_measured(run_vllm: RunVllm) -> None:
    """Else a round would read a few of its experts."""
    code, [events], log = run_vllm(settings(), behaviour="other-routers")
    assert code == 1, log
    [failure] = [event for event in events if isinstance(event, Failure)]
    assert (failure.cause, "routers have other names" in failure.message) == ("unsupported", True)


def test_copies_share_the_samples_and_the_gpus(run_vllm: RunVllm) -> None:
    """Two copies of one GPU each: two requests each, another GPU each."""
    code, streams, log = run_vllm(settings(data_parallel=2))
    assert code == 0, log
    headers = [events[0] for events in streams]
    assert [header.replica for header in headers if isinstance(header, Header)] == [0, 1]
    assert len({header.device_uuid for header in headers if isinstance(header, Header)}) == 2
    assert [[step.work.samples for step in steps_of(events)] for events in streams] == [[2, 2], [2, 2]]


@pytest.mark.parametrize("load", [{}, {"concurrency": 2}], ids=["batch", "serving"])
def test_one_engine_over_two_hosts(run_vllm: RunVllm, load: dict[str, Any], tmp_path: Path) -> None:
    """A process on each: the first drives workers on both, the other reports the same work of the same replica."""
    code, [first, second], log = run_vllm(settings(tensor_parallel=2, nodes=2, **load))
    assert code == 0, log
    headers = [events[0] for events in (first, second)]
    assert [header.replica for header in headers if isinstance(header, Header)] == [0, 0]
    assert len({header.device_uuid for header in headers if isinstance(header, Header)}) == 2
    assert [step.work for step in steps_of(second)] == [step.work for step in steps_of(first)]
    assert all(step.requests for step in steps_of(first))
    assert not any(step.requests or step.token_end_ns for step in steps_of(second))
    assert metrics_of(first)["kv_cache_tokens"] == 100_000
    for pid in re.findall(r"engine process (\d+)", (tmp_path / "stdout").read_text()):
        wait_until_gone(int(pid))


def test_a_followers_dead_worker_ends_its_host(
    run_vllm: RunVllm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first host, which waits for it, is ended by torchrun here, by the host that leads elsewhere."""
    monkeypatch.chdir(tmp_path)  # what a killed worker leaves
    code, _, log = run_vllm(settings(tensor_parallel=2, nodes=2), "follower-dies")
    assert code == 1
    assert "a worker of vLLM on this host died unexpectedly" in log
    for pid in re.findall(r"engine process (\d+)", (tmp_path / "stdout").read_text()):
        wait_until_gone(int(pid))


@pytest.mark.parametrize(
    ("load", "running"), [({"concurrency": 2}, (2, 2)), ({"request_rate_per_s": 100.0}, (1, 4))], ids=["closed", "open"]
)
def test_requests_come_one_by_one(run_vllm: RunVllm, load: dict[str, Any], running: tuple[int, int]) -> None:
    """At most two in flight, or each at its own moment."""
    code, [events], log = run_vllm(settings(**load))
    assert code == 0, log
    for step in steps_of(events):
        assert running[0] <= step.values["num_running"] <= running[1]
    assert ("num_runnable" in metrics_of(events)) == ("concurrency" in load)


@pytest.mark.parametrize("load", [{}, {"concurrency": 4}], ids=["batch", "serving"])
def test_an_engine_stays_for_points_of_another_load(run_vllm: RunVllm, load: dict[str, Any], tmp_path: Path) -> None:
    """One engine measures two points: requests, peak memory and preemptions belong to each point.

    4 prompts of 6 tokens share 4: blocks of 2 save 3 * 4 of 24 tokens in every step. No step finds an earlier step's
    cache, and prompts without shared tokens find none.
    """
    caching: dict[str, Any] = {"prefix_caching": True, "engine_args": {"block_size": 2}}
    more = settings(batch_size=2, **caching, **({"concurrency": 1} if load else {}))
    code, [events], log = run_vllm(settings(shared_prefix_tokens=4, **caching, **load), "preempts", then=(more,))
    assert code == 0, log
    assert (tmp_path / "stdout").read_text().count("engine process") == 1
    first, second = points_of(events)
    assert [[step.work.samples for step in steps_of(each)] for each in (first, second)] == [[4, 4], [2, 2]]
    assert [metrics_of(each)["peak_memory_bytes"] for each in (first, second)] == [5 * 2**30, 5 * 2**30 + 1]
    assert [metrics_of(each)["num_runnable"] for each in (first, second)] == [4, 1 if load else 2]
    alone = [step.values["num_preemptions"] for step in steps_of(second)]
    assert alone == [10.0 if load else 5.0] * 2
    hits = [[step.values["prefix_hit_fraction"] for step in steps_of(each)] for each in (first, second)]
    assert hits == [[0.5, 0.5], [0.0, 0.0]]


def test_lost_places_in_the_cache_are_counted(run_vllm: RunVllm) -> None:
    """One in each of five iterations. A cache whose room the engine does not tell is unknown, not empty."""
    _, [events], _ = run_vllm(settings(), "preempts")
    assert steps_of(events)[0].values["num_preemptions"] == 5.0
    assert "kv_cache_tokens" not in metrics_of(events)


@pytest.mark.parametrize(
    ("behaviour", "cause", "message"),
    [
        ("dies-at-start", "engine", "vLLM's engine process did not start"),
        ("dies-at-work", "engine", "vLLM's engine process died at work"),
        ("other-gpus", "unsupported", "vLLM runs on "),
    ],
)
def test_a_broken_engine_is_a_result_and_leaves_nothing(
    run_vllm: RunVllm, behaviour: str, cause: str, message: str, tmp_path: Path
) -> None:
    """Its own process ends with the worker, although nobody shut it down."""
    code, [events], _ = run_vllm(settings(), behaviour)
    failure = events[-1]
    assert isinstance(failure, Failure)
    assert (code, failure.cause) == (1, cause)
    assert failure.message.startswith(message)
    found = re.search(r"engine process (\d+)", (tmp_path / "stdout").read_text())
    assert found
    wait_until_gone(int(found[1]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": 1}, "engine_args.seed: pybench sets it itself; set the benchmark's seed instead"),
        (
            {"distributed_executor_backend": "ray"},
            "engine_args.distributed_executor_backend: pybench sets it itself and has no setting for it",
        ),
    ],
)
def test_engine_arguments_are_checked_by_name(run_vllm: RunVllm, given: dict[str, Any], message: str) -> None:
    """Against the version that is installed."""
    code, [events], _ = run_vllm(settings(engine_args=given))
    failure = events[-1]
    assert isinstance(failure, Failure)
    assert (code, failure.cause, failure.message) == (1, "unsupported", message)


def test_lists_and_tables_reach_the_engine(run_vllm: RunVllm, tmp_path: Path) -> None:
    """As the suite has them."""
    given = {"cudagraph_capture_sizes": [1, 8], "compilation_config": {"level": 3}}
    code, _, log = run_vllm(settings(engine_args=given))
    assert code == 0, log
    assert f"more arguments {given}" in (tmp_path / "stdout").read_text()


@pytest.mark.parametrize(("more", "method"), [({"tensor_parallel": 2}, "fork"), ({"data_parallel": 2}, "spawn")])
def test_an_engine_that_is_alone_forks_its_processes(
    run_vllm: RunVllm, more: dict[str, Any], method: str, tmp_path: Path
) -> None:
    """Several replicas have met by threads. The model's path is relative: vLLM's key of compiled code has it."""
    code, _, log = run_vllm(settings(**more))
    assert code == 0, log
    assert f"model model-0 processes by {method}\n" in (tmp_path / "stdout").read_text()


def test_too_few_gpus(run_vllm: RunVllm) -> None:
    """Before an engine is started."""
    code, [events], _ = run_vllm(settings(tensor_parallel=2), devices=1)
    failure = events[-1]
    assert isinstance(failure, Failure)
    assert (code, failure.message) == (1, SENTENCES["too_few_gpus"])


def test_settings_in_the_engines_words(tmp_path: Path) -> None:
    """Every name is one of EngineArgs' own; CUDA graphs and compilation stay on unless told otherwise."""
    order = settings(
        tensor_parallel=2,
        pipeline_parallel=3,
        quantization="fp8",
        max_num_seqs=8,
        gpu_memory_utilization=0.5,
        length_spread_fraction=0.5,
    )
    arguments = engine_arguments(order, tmp_path)
    recorded = json.loads(RECORDED.read_text())
    assert arguments.keys() <= set(recorded["fields"]["vllm/engine/arg_utils.py:EngineArgs"])
    expected = {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 3,
        "quantization": "fp8",
        "max_num_seqs": 8,
        "gpu_memory_utilization": 0.5,
        "max_model_len": 9 + 7,
        "enforce_eager": False,
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "enable_prefix_caching": False,
        "distributed_executor_backend": "mp",
    }
    assert {name: arguments[name] for name in expected} == expected
    assert engine_arguments(settings(prefix_caching=True), tmp_path)["enable_prefix_caching"] is True
    assert engine_arguments(settings(max_context_tokens=32), tmp_path)["max_model_len"] == 32
    alone = engine_arguments(settings(), tmp_path)
    assert alone.keys().isdisjoint({"quantization", "max_num_seqs", "distributed_executor_backend"})


def test_the_stat_logger_is_called_as_recorded() -> None:
    """Every argument that vLLM hands over fits, and what it reads was there in 0.20.2."""
    recorded = json.loads(RECORDED.read_text())
    (_, scheduler, iteration, *others) = recorded["parameters"]["vllm/v1/metrics/loggers.py:StatLoggerBase.record"]
    assert (scheduler, iteration) == ("scheduler_stats", "iteration_stats")
    read = {"num_generation_tokens", "inter_token_latencies_iter", "num_preempted_reqs"}
    assert read <= set(recorded["iteration_stats"])
    assert {"num_running_reqs", "prefix_cache_stats"} <= set(
        recorded["fields"]["vllm/v1/metrics/stats.py:SchedulerStats"]
    )
    log = Iterations()
    stats = SimpleNamespace(num_generation_tokens=2, inter_token_latencies_iter=[0.1, 0.3], num_preempted_reqs=1)
    inspect.signature(log.record).bind(None, stats, **dict.fromkeys(others))
    prefixes = SimpleNamespace(queries=40, hits=10)
    scheduled = SimpleNamespace(num_running_reqs=2, prefix_cache_stats=prefixes)
    log.record(scheduled, stats, mm_cache_stats=None, engine_idx=0)
    log.record(None, None)
    assert log.values()["prefix_hit_fraction"] == 0.25
    assert log.values()["itl_p50_s"] == pytest.approx(0.2)
    assert (log.values()["num_preemptions"], log.values()["num_running"], len(log.end_ns)) == (1.0, 2.0, 1)


def test_the_fakes_signatures_are_the_recorded_ones(tmp_path: Path) -> None:
    """The stand-in takes no argument that the real one lacks."""
    shutil.copy(HERE / "fakes/vllm.py", tmp_path)
    shutil.copy(RECORDED, tmp_path)
    code = (
        "import inspect, json, vllm; "
        "print(json.dumps({f'{k.__name__}.{n}': list(inspect.signature(m).parameters)"
        " for k in (vllm.LLMEngine, vllm.AsyncLLM, vllm.MultiprocExecutor)"
        " for n, m in inspect.getmembers(k, callable) if not n.startswith('_')}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    recorded = {
        key.partition(":")[2]: set(names) for key, names in json.loads(RECORDED.read_text())["parameters"].items()
    }
    for name, parameters in json.loads(done.stdout).items():
        assert set(parameters) <= recorded[name], name
