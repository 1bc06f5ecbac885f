"""A server from suite file to report: the real worker, client and stub server, over HTTP on loopback."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pybench.model.progress import Progress
from pybench.model.results import Results
from pybench.run.engines.local import Local
from pybench.run.engines.process import processes_marked
from pybench.run.loop import Run
from pybench.run.prepare import prepare_run

SUITE = """
schema = 1
name = "served"
description = "a stub server under load"

[[benchmark]]
name = "load"
workload = "generate"
backend = "server"
model = "llama-tiny"
dtype = "float32"
batch_size = 16
prompt_tokens = 8
output_tokens = 4
attempts = 1
max_attempts = 1
steps = 2
max_warmup_steps = 1
{settings}
"""

Serve = Callable[..., tuple[Run, Results]]


@pytest.fixture
def serve(tmp_path: Path, warm_python: Path) -> Serve:
    """Run the suite with more settings: the run and its results. Workers and servers are forks unless ``cold``."""

    def run(settings: str, *, cold: bool = False) -> tuple[Run, Results]:
        python = sys.executable if cold else str(warm_python)
        suite = tmp_path / "served.toml"
        suite.write_text(SUITE.format(settings=settings))
        made = prepare_run(suite, tmp_path / "runs", lambda _: Local(python))
        return made, made.finish(Progress())

    return run


def command(*options: str) -> str:
    """A ``server_command`` of the stub with more options."""
    return f"server_command = {['{python}', '-I', '-B', '{stub}', '--port', '{port}', *options]}"


def assert_nothing_is_left(run: Run) -> None:
    assert not list(processes_marked(f"{run.folder.mark}/"))


def test_a_healthy_server_shows_everything(serve: Serve) -> None:
    """Throughput, latencies up to p99.9, goodput, the server's own latencies; the stub keeps the limit on TTFT."""
    run, results = serve('server = "stub"\nconcurrency = 4\nttft_limit_s = 10', cold=True)
    (point,) = results.points
    assert point.status == "ok", point.reason
    values = {name: estimate.value for name, estimate in point.metrics.items()}
    assert {"ttft_p999_s", "tpot_p50_s", "itl_p99_s", "e2e_s", "server_ttft_s", "server_itl_s"} <= set(values)
    assert values["goodput_requests_per_s"] == pytest.approx(values["requests_per_s"])
    assert values["num_failed_requests"] == 0
    assert 0.005 <= values["server_ttft_s"] <= values["ttft_s"]
    assert values["steady_output_tokens_per_s"] > 0
    assert_nothing_is_left(run)


def test_one_server_serves_several_loads(serve: Serve) -> None:
    """Loads share it; another shape of the server has its own."""
    run, results = serve('server = "stub"\n[benchmark.axes]\nconcurrency = [2, 4]')
    assert [point.status for point in results.points] == ["ok", "ok"], [point.reason for point in results.points]
    assert [len(record.warm_after) for record in run.folder.journal.records()] == [0, 1]
    assert_nothing_is_left(run)


@pytest.mark.parametrize(
    ("options", "cause", "message"),
    [
        (("--fault", "exit"), "engine", "the server ended with exit code"),
        (("--fault", "wrong_counts"), "wrong_result", "requests failed (9 wrong counts)"),
        (("--no-such-option",), "engine", "the server ended with exit code 2 before it answered /health"),
    ],
)
def test_a_broken_server_is_a_record(options: tuple[str, ...], cause: str, message: str, serve: Serve) -> None:
    """The cause and its words are kept, and no process is left."""
    run, results = serve(command(*options))
    (record,) = run.folder.journal.records()
    assert record.failure is not None
    assert record.failure.cause == cause
    assert message in record.failure.message
    assert results.points[0].status == "failed"
    assert_nothing_is_left(run)


def test_a_few_failed_requests_are_part_of_the_record(serve: Serve) -> None:
    """Work is that of the others."""
    run, results = serve(f"concurrency = 2\n{command('--fault', 'status_500', '--fault-every', '8')}")
    (point,) = results.points
    assert point.status == "ok", point.reason
    assert point.metrics["num_failed_requests"].value == 2
    assert {step.work.samples for record in run.folder.journal.records() for step in record.ranks[0].steps} == {14}
    assert_nothing_is_left(run)


def test_a_command_gets_a_checkpoint_that_goes_with_the_run(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every server that is started loads the same one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    note = (
        "import os, sys; seen, folder, *rest = sys.argv[1:]; number = os.stat(folder + '/config.json').st_ino; "
        "open(seen, 'a').write(str(number) + ' '); os.execv(sys.executable, [sys.executable, *rest])"
    )
    stub = ["-I", "-B", "{stub}", "--port", "{port}", "--max-num-seqs", "{max_num_seqs}"]
    words = ["{python}", "-c", note, str(tmp_path / "seen"), "{checkpoint_folder}", *stub]
    run, results = serve(f"server_command = {json.dumps(words)}\n[benchmark.axes]\nmax_num_seqs = [4, 8]")
    assert [point.status for point in results.points] == ["ok", "ok"], [point.reason for point in results.points]
    first, second = (tmp_path / "seen").read_text().split()
    assert first == second
    assert_nothing_is_left(run)
    assert not list((tmp_path / "scratch").iterdir())
