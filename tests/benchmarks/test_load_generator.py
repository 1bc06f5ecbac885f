"""The limits of the load generator itself, against the stub server: cost of a token, added latency, highest rate.

The stub's delays are known: the added latency is TTFT above the stub's prefill. It is that of both event loops.
"""

from __future__ import annotations

import asyncio
import statistics
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pybench.model.workloads.generate import Generate, percentiles
from pybench.worker.backends.engine import draw_requests
from pybench.worker.backends.server.client import Load, LoadClient
from pybench.worker.backends.server.entry import served

PREFILL_MS = 20.0
RATES_PER_S = (50, 100, 200, 400, 800)


def loaded(folder: Path, options: tuple[str, ...], **load: Any) -> tuple[Load, float]:
    """The outcome of a load and its tokens. It is sent twice: the first time opens the connections."""
    command = ["{python}", "-I", "-B", "{stub}", "--port", "{port}", *options]
    usual = {"backend": "server", "server_command": command, "model": "m", "batch_size": 400, "prompt_tokens": 128}
    given = Generate(**{**usual, "output_tokens": 32, **load})
    with served(given, folder) as server, closing(asyncio.new_event_loop()) as loop:
        client = LoadClient(server.url, draw_requests(given, 32000, 0), given.concurrency, 600.0)
        loop.run_until_complete(client.open())
        loop.run_until_complete(client.send_all(None))
        load_of = loop.run_until_complete(client.send_all(None))
        loop.run_until_complete(client.close())
    return load_of, float(sum(times.output_tokens for times in load_of.times))


def test_cost_of_a_token(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """CPU time of the client over tokens, 16 requests in flight, each token an event of its own."""
    costs_us: list[float] = []

    def run() -> None:
        load, tokens = loaded(tmp_path, ("--prefill-ms", "20", "--decode-ms", "10"), concurrency=16)
        costs_us.append(load.client_cpu_s / tokens * 1e6)

    benchmark.pedantic(run, rounds=3)
    benchmark.extra_info["cpu_us_per_token"] = costs_us
    with capsys.disabled():
        print(f"\nthe load generator takes {statistics.median(costs_us):.1f} us of a core for each token")
    assert statistics.median(costs_us) < 1000  # a thousand tokens a second would fill a core


def test_added_latency(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """TTFT above the stub's prefill, one request at a time: both processes' event loops, and HTTP."""
    added_ms: list[float] = []

    def run() -> None:
        load, _ = loaded(tmp_path, ("--prefill-ms", str(PREFILL_MS), "--decode-ms", "1"), concurrency=1)
        added_ms.extend((times.first_token_ns - times.arrival_ns) / 1e6 - PREFILL_MS for times in load.times)

    benchmark.pedantic(run, rounds=1)
    p50, p99 = percentiles(sorted(added_ms), (50, 99))
    benchmark.extra_info |= {"added_p50_ms": p50, "added_p99_ms": p99}
    with capsys.disabled():
        print(f"\nTTFT is longer than the stub's prefill by {p50:.2f} ms (p50), {p99:.2f} ms (p99)")
    assert p50 > 0


def test_highest_rate(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The highest rate of an open loop at which no more than 0.5 % of arrivals are late; two tokens a request."""
    shares: dict[int, float] = {}

    def run() -> None:
        for rate in RATES_PER_S:
            load, _ = loaded(tmp_path, ("--prefill-ms", "5"), request_rate_per_s=rate, output_tokens=2, batch_size=800)
            shares[rate] = load.num_late / 800

    benchmark.pedantic(run, rounds=1)
    benchmark.extra_info["late_fractions"] = shares
    kept = [rate for rate, late in shares.items() if late <= 0.005]
    with capsys.disabled():
        print(f"\nlate arrivals by rate: {shares}; highest rate that passes: {max(kept, default=None)} requests/s")
    assert shares
