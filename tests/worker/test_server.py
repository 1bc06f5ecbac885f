"""The load generator against the stub server, over HTTP: its figures, and its names for faults."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from pybench.model.workloads.generate import Generate, drawn_lengths
from pybench.worker.backend import EngineError, WrongResultError
from pybench.worker.backends.engine import draw_requests
from pybench.worker.backends.server import stub
from pybench.worker.backends.server.client import Load, LoadClient
from pybench.worker.backends.server.entry import counters, increases, served

NUM_REQUESTS, PROMPT_TOKENS, OUTPUT_TOKENS = 20, 8, 6
# The beginning of each fault's message.
CAUSES = {
    "status_500": "status 500",
    "status_429": "status 429",
    "redirect": "redirect 307: to http://192.0.2.1/v1/completions",
    "malformed": "malformed event",
    "not_an_object": "malformed event",
    "error_event": 'error event: {"message": "engine died"',
    "half_stream": "broken stream",
    "reset": "connection lost",
    "wrong_counts": "wrong counts: usage {'prompt_tokens': 8, 'completion_tokens': 7}",
    "too_many_events": "too many events",
    "oversized_event": "oversized event",
    "after_done": "malformed event: data behind [DONE]",
    "hang": "cancelled: no end within 1 s",
}


def settings(**changes: object) -> Generate:
    lengths = {"batch_size": NUM_REQUESTS, "prompt_tokens": PROMPT_TOKENS, "output_tokens": OUTPUT_TOKENS}
    server = {"backend": "server", "server": "stub", "model": "tiny", "request_limit_s": 60.0}
    return Generate(**{**lengths, **server, **changes})  # type: ignore[arg-type]


Stubbed = Callable[..., AbstractContextManager[Callable[[], Load]]]


@pytest.fixture
def stubbed(tmp_path: Path, warm_python: Path) -> Stubbed:
    """Sends the requests of ``given`` to a stub with more ``options``; returns what came of them."""

    @contextmanager
    def sends(*options: str, given: Generate) -> Iterator[Callable[[], Load]]:
        command = (str(warm_python), "-I", "-B", "{stub}", "--port", "{port}", *options)
        with served(settings(server=None, server_command=list(command)), tmp_path) as server:
            requests = draw_requests(given, 1000, 0)
            client = LoadClient(server.url, requests, given.concurrency, given.request_limit_s)
            with closing(asyncio.new_event_loop()) as loop:
                loop.run_until_complete(client.open())
                yield lambda: loop.run_until_complete(client.send_all(None))
                loop.run_until_complete(client.close())

    return sends


def test_times_are_those_of_the_stub(stubbed: Stubbed) -> None:
    """TTFT is at least the stub's prefill, E2E also its five decode steps; tokens are those ordered."""
    with stubbed("--prefill-ms", "30", "--decode-ms", "10", given=settings(concurrency=4)) as send:
        load = send()
    assert not load.faults
    assert len(load.times) == NUM_REQUESTS
    assert len(load.gaps_s) == NUM_REQUESTS * (OUTPUT_TOKENS - 1)
    for times in load.times:
        assert times.first_token_ns - times.arrival_ns >= 30e6
        assert times.last_token_ns - times.arrival_ns >= 80e6
        assert (times.prompt_tokens, times.output_tokens) == (PROMPT_TOKENS, OUTPUT_TOKENS)
    assert load.client_cpu_s > 0


def test_a_closed_loop_keeps_its_number_in_flight(stubbed: Stubbed) -> None:
    """At most so many requests are between arrival and last token at any time."""
    with stubbed(given=settings(concurrency=3)) as send:
        times = send().times
    moments = sorted([(t.arrival_ns, 1) for t in times] + [(t.last_token_ns, -1) for t in times])
    in_flight = most = 0
    for _, change in moments:
        in_flight += change
        most = max(most, in_flight)
    assert most == 3


def test_an_open_loop_sends_at_the_drawn_moments(stubbed: Stubbed) -> None:
    """Arrivals are those of the seed, whatever became of the requests before; nothing waits for an answer."""
    given = settings(request_rate_per_s=200, burstiness=0.5)
    with stubbed("--prefill-ms", "300", given=given) as send:
        times = sorted(send().times, key=lambda t: t.arrival_ns)
    drawn_s = [request.arrival_s for request in drawn_lengths(given, 0)]
    expected_ns = [round((later - earlier) * 1e9) for earlier, later in pairwise(drawn_s)]
    found_ns = [later.arrival_ns - earlier.arrival_ns for earlier, later in pairwise(times)]
    assert all(abs(found - expected) <= 1 for found, expected in zip(found_ns, expected_ns, strict=True))
    assert times[-1].arrival_ns < times[0].last_token_ns


def test_gamma_arrivals_have_the_rate_and_the_spread() -> None:
    """Burstiness is the shape of vLLM's gamma distribution: mean 1/rate, variance 1/(rate^2 burstiness)."""
    given = settings(batch_size=20_000, request_rate_per_s=10, burstiness=0.25)
    arrivals_s = [request.arrival_s for request in drawn_lengths(given, 0)]
    gaps_s = [later - earlier for earlier, later in pairwise([0.0, *arrivals_s])]
    mean_s = sum(gaps_s) / len(gaps_s)
    variance = sum((gap - mean_s) ** 2 for gap in gaps_s) / len(gaps_s)
    assert mean_s == pytest.approx(0.1, rel=0.05)
    assert variance == pytest.approx(0.04, rel=0.1)


@pytest.mark.parametrize("fault", CAUSES)
def test_every_fault_has_a_name(fault: str, stubbed: Stubbed) -> None:
    """A server that answers all requests wrongly fails the step, by the fault's name, and costs seconds."""
    failing = pytest.raises(WrongResultError, match=r"of 20 requests failed \(\d+ ")
    given = settings(concurrency=2, request_limit_s=1.0 if fault == "hang" else 60.0)
    with stubbed("--fault", fault, given=given) as send, failing as failed:
        send()
    assert CAUSES[fault] in str(failed.value)


@pytest.mark.parametrize("fault", ["status_429", "half_stream"])
def test_a_few_failures_are_counted(fault: str, stubbed: Stubbed) -> None:
    """A step goes on, without the requests that failed."""
    with stubbed("--fault", fault, "--fault-every", "5", given=settings(concurrency=2)) as send:
        load = send()
    assert load.faults.total() == 4
    assert len(load.times) == NUM_REQUESTS - 4


def test_every_fault_of_the_stub_is_tried() -> None:
    """The remaining one ends the server: ``tests/run/test_server.py``."""
    assert set(stub.FAULTS) == {*CAUSES, "exit"}


def test_a_stalled_loop_sends_late(stubbed: Stubbed) -> None:
    """Arrivals that the load generator delays are counted: the stall here begins with the first answer."""
    given = settings(request_rate_per_s=400)
    with stubbed(given=given) as send:
        asyncio_sleep = asyncio.sleep

        async def stalling(delay_s: float) -> None:
            await asyncio_sleep(delay_s)
            time.sleep(0.02)  # noqa: ASYNC251 - the stall

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "sleep", stalling)
            load = send()
    assert load.num_late > NUM_REQUESTS / 2


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["{python}", "-c", "print('no GPU here'); raise SystemExit(3)", "{port}"], "exit code 3"),
        (["/no/such/server", "{port}"], "No such file or directory"),
    ],
)
def test_a_server_that_does_not_start(
    command: list[str], words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its exit code is named, and its last words are in the log."""
    with pytest.raises(EngineError, match=words), served(settings(server=None, server_command=command), tmp_path):
        pass
    assert ("no GPU here" in capfd.readouterr().err) == (words == "exit code 3")


def test_variables_reach_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The server gets the worker's variables, which tune collectives, and the variables of its entry."""
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    show = "import os; print(os.environ['NCCL_NVLS_ENABLE'], os.environ['NCCL_SOCKET_IFNAME']); raise SystemExit(3)"
    given = settings(server=None, server_command=["{python}", "-c", show, "{port}"])
    with pytest.raises(EngineError), served(given, tmp_path):
        pass
    assert "0 lo" in capfd.readouterr().err.splitlines()


def test_a_server_ends_with_its_context(tmp_path: Path) -> None:
    """SIGTERM, and it is waited for."""
    with served(settings(), tmp_path) as server:
        assert server.process.poll() is None
    assert server.process.poll() is not None


def test_counters_are_summed_over_labels() -> None:
    """A quotient of increases is the mean of a step; a counter that another lacks is left out."""
    page = '# TYPE a counter\na{x="1"} 2.0\na{x="2 }"} 3\nb 4e0\nc{x="1"} nonsense\n'
    assert counters(page, {"a", "b", "c"}) == {"a": 5.0, "b": 4.0}
    before, after = {"a": 5.0, "b": 4.0}, {"a": 9.0, "b": 6.0}
    assert increases({"mean": ("a", "b"), "sum": ("a",), "none": ("d",)}, before, after) == {"mean": 2.0, "sum": 4.0}


def test_the_stub_needs_nothing_of_pybench() -> None:
    """It runs in any image that has aiohttp."""
    result = subprocess.run([sys.executable, "-I", stub.__file__, "--help"], capture_output=True, text=True, check=True)
    assert "--fault" in result.stdout
