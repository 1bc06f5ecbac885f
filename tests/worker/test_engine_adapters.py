"""The adapters of all engines, each with a fake engine, through the staged worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pybench.model.decoder_shape import Architecture
from pybench.model.wire import Event, Failure, Header, Metric, Result
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import BackendName
from tests.worker.conftest import RunEngine, RunWorker, points_of, steps_of

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One engine, and what its stand-in reports of a batch of four requests on two GPUs."""

    backend: BackendName
    version: str
    recorded: str
    image: str
    values: dict[str, float]
    metrics: dict[str, float]
    streams_batches: bool
    misspelt: tuple[str, str]
    decided: tuple[str, object, str]


ADAPTERS = (
    Adapter(
        backend="vllm",
        version="0.20.2",
        recorded="vllm-0.20.2.json",
        image="vllm-openai",
        values={"num_running": 4.0, "num_preemptions": 0.0},
        metrics={
            "peak_memory_bytes": 5 * 2**30 + 1,
            "peak_reserved_memory_bytes": 6 * 2**30,
            "kv_cache_tokens": 100_000,
            "num_runnable": 4,
        },
        streams_batches=True,
        misspelt=("block_sise", "block_size"),
        decided=("data_parallel_size", 2, "data_parallel"),
    ),
    Adapter(
        backend="tensorrt_llm",
        version="1.2.1",
        recorded="tensorrt_llm-1.x.json",
        image="nvcr.io/nvidia/tensorrt-llm/release",
        values={"num_running": 2.0, "num_preemptions": 1.0},
        metrics={"peak_memory_bytes": 7 * 2**30, "kv_cache_tokens": 3200, "num_runnable": 3},
        streams_batches=False,
        misspelt=("max_batch_sise", "max_batch_size"),
        decided=("max_batch_size", 1, "max_num_seqs"),
    ),
)

RunAdapter = Callable[..., tuple[int, list[list[Event]], str]]


@pytest.fixture(params=ADAPTERS, ids=lambda adapter: adapter.backend)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    found: Adapter = request.param
    return found


def settings(adapter: Adapter, **more: Any) -> Generate:
    sizes = {"batch_size": 4, "prompt_tokens": 6, "output_tokens": 5}
    return Generate(**{"backend": adapter.backend, "model": "tiny", **sizes, **more})


@pytest.fixture
def run_adapter(run_engine: RunEngine, adapter: Adapter) -> RunAdapter:
    """Run an order, and ``then`` more, with the engine's stand-in."""

    def run(order: Generate, **more: Any) -> tuple[int, list[list[Event]], str]:
        return run_engine(HERE / f"fakes/{adapter.backend}.py", HERE / "recorded" / adapter.recorded, order, **more)

    return run


def test_a_batch_reports_every_request(adapter: Adapter, run_adapter: RunAdapter) -> None:
    """4 requests of 6 and 5 tokens on two GPUs; each has its own times, in order, on the worker's clock."""
    code, [events], log = run_adapter(settings(adapter, tensor_parallel=2))
    assert code == 0, log
    header = events[0]
    assert isinstance(header, Header)
    assert len(header.all_uuids) == 2
    assert isinstance(events[-1], Result)
    steps = steps_of(events)
    assert [(s.work.prompt_tokens, s.work.output_tokens, s.work.samples) for s in steps] == [(24, 20, 4)] * 2
    for step in steps:
        assert len(step.requests) == 4
        for times in step.requests:
            assert step.start_ns <= times.arrival_ns < times.first_token_ns < times.last_token_ns
        assert adapter.values.items() <= step.values.items()
        assert ("itl_p50_s" in step.values) == adapter.streams_batches
    assert {event.name: event.value for event in events if isinstance(event, Metric)} == adapter.metrics


@pytest.mark.parametrize("load", [{"concurrency": 2}, {"request_rate_per_s": 100.0}], ids=["closed", "open"])
def test_requests_that_come_one_by_one_are_streamed(
    adapter: Adapter, run_adapter: RunAdapter, load: dict[str, float]
) -> None:
    """Each arrives at its own moment, and the time between its tokens is known."""
    code, [events], log = run_adapter(settings(adapter, **load))
    assert code == 0, log
    for step in steps_of(events):
        assert len({times.arrival_ns for times in step.requests}) > 1
        assert step.values["itl_p50_s"] > 0


def test_an_engine_stays_for_points_of_another_load(adapter: Adapter, run_adapter: RunAdapter) -> None:
    """Each point has its own requests."""
    code, [events], log = run_adapter(settings(adapter), then=(settings(adapter, batch_size=2, concurrency=1),))
    assert code == 0, log
    assert [[step.work.samples for step in steps_of(each)] for each in points_of(events)] == [[4, 4], [2, 2]]


def refusal(run_adapter: RunAdapter, order: Generate) -> str:
    """The message of an order that is not supported."""
    code, [events], _ = run_adapter(order)
    failure = events[-1]
    assert isinstance(failure, Failure)
    assert (code, failure.cause) == (1, "unsupported")
    return failure.message


def test_a_misspelt_engine_argument_is_refused(adapter: Adapter, run_adapter: RunAdapter) -> None:
    """By the names of the version that is installed."""
    wrong, right = adapter.misspelt
    assert refusal(run_adapter, settings(adapter, engine_args={wrong: 1})) == (
        f"engine_args.{wrong}: {adapter.backend} {adapter.version} has no such argument; did you mean {right!r}?"
    )


def test_an_argument_that_a_setting_decides_is_refused(adapter: Adapter, run_adapter: RunAdapter) -> None:
    """The message names the setting."""
    argument, value, setting = adapter.decided
    assert refusal(run_adapter, settings(adapter, engine_args={argument: value})) == (
        f"engine_args.{argument}: pybench sets it itself; set the benchmark's {setting} instead"
    )


def test_a_worker_without_the_package_names_the_image(
    adapter: Adapter, run_worker: RunWorker, architecture: Architecture, stage: Path
) -> None:
    """As the test environment is; where it is not, the stage hides it."""
    (stage / f"{adapter.backend}.py").write_text(f"raise ModuleNotFoundError('no', name={adapter.backend!r})\n")
    code, [events], log = run_worker(settings(adapter), architecture, device="cuda")
    failure = events[-1]
    assert isinstance(failure, Failure)
    assert (code, failure.cause, log) == (1, "missing_package", "")
    assert f"backend {adapter.backend!r} needs the package {adapter.backend!r}" in failure.message
    assert adapter.image in failure.message
