"""Faults of a GPU, from the fake driver through the runner to a named verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybench.machine import gpu_processes
from pybench.model.progress import Progress
from pybench.model.results import Results
from pybench.run.engines.base import Launch
from pybench.run.prepare import prepare_run
from tests.run.fake_launcher import FakeLauncher

pytestmark = pytest.mark.usefixtures("fake_node")

SUITE = """
schema = 1
name = "node"
description = "two GPUs that a fake driver makes up"

[[benchmark]]
name = "matmul"
workload = "matmul"
backend = "torch"
gpus = 2
attempts = 2
max_attempts = 2
steps = 3
"""
UUIDS = tuple(f"GPU-0000000{i}-fake-4000-8000-00000000000{i}" for i in range(2))
_REASONS = "nvmlDeviceGetCurrentClocksEventReasons"
Tell = Callable[..., None]


class Waiting(FakeLauncher):
    """The fake worker waits for the file ``seen`` in the current folder before it measures."""

    def behaviour(self, job: Launch) -> dict[str, str]:
        return {**super().behaviour(job), "FAKE_WAIT": str(Path("seen").absolute())}


class Attempts(Progress):
    """Calls ``between`` when an attempt begins."""

    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between

    def phase(self, name: str) -> None:  # noqa: ARG002 - whichever it is
        """The worker reports its first phase: the attempt is under way."""
        self._between()
        Path("seen").touch()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Results]:
    """Run the suite; ``between`` happens while the worker runs."""
    monkeypatch.chdir(tmp_path)

    def measure(between: Callable[[], None] = lambda: None) -> Results:
        (tmp_path / "node.toml").write_text(SUITE)
        made = prepare_run(tmp_path / "node.toml", tmp_path / "runs", lambda _needs: Waiting())
        return made.finish(Attempts(between))

    return measure


def _verdicts(results: Results) -> dict[str, tuple[str, str]]:
    return {check.name: (check.subject, check.verdict) for check in results.node}


def test_a_healthy_node(fake_nvml: Tell, run: Callable[..., Results]) -> None:
    """Counters do not move, links are as wide as they can be."""
    fake_nvml(devices=2)
    results = run()
    assert results.machine == "h200"
    found = _verdicts(results)
    assert found["memory_errors"] == found["pcie"] == found["xid"] == ("all GPUs", "pass")
    assert found["slowest"][1] == "pass"
    assert results.verdict == "pass", results.reason


@pytest.mark.parametrize(("errors", "hit"), [("0;1", [1]), ("1", [0, 1])])
def test_an_ecc_error_meanwhile(
    fake_nvml: Tell, run: Callable[..., Results], monkeypatch: pytest.MonkeyPatch, errors: str, hit: list[int]
) -> None:
    """It comes while the worker runs, on one of the two GPUs or on both: those are named, and no other."""
    fake_nvml(devices=2)
    results = run(lambda: monkeypatch.setenv("FAKE_NVML_ECC_UNCORRECTED", errors))
    failing = [check for check in results.node if check.verdict == "fail"]
    assert [(c.name, c.subject) for c in failing] == [("memory_errors", f"GPU {i} ({UUIDS[i]})") for i in hit]
    assert (results.verdict, results.reason.split(" (")[0]) == ("fail", f"GPU {hit[0]}")


@pytest.mark.parametrize(
    ("reasons", "verdict", "words"),
    [
        ("0;72", "fail", "hardware slowdown, hardware thermal slowdown, read in 1 of 1 points"),
        ("0;128", "fail", "hardware power brake, read in 1 of 1 points"),
        (
            "0;4",
            "pass",
            (
                f"read in 1 of 1 points; met their power limit: GPU 1 ({UUIDS[1]}); "
                "a cause: GPU 1 is limited to 650 W, below its default of 700 W"
            ),
        ),
    ],
)
def test_throttling(
    fake_nvml: Tell,
    fake_answered: Callable[[str, int], int],
    run: Callable[..., Results],
    reasons: str,
    verdict: str,
    words: str,
) -> None:
    """Of the second GPU, read while steps are measured: heat and a power brake fail, the power limit is told."""
    fake_nvml(devices=2, clock_event_reasons=reasons)

    def until_read() -> None:
        before = [fake_answered(_REASONS, gpu) for gpu in range(2)]
        while any(fake_answered(_REASONS, gpu) < before[gpu] + 2 for gpu in range(2)):
            time.sleep(0.01)

    results = run(until_read)
    (check,) = (check for check in results.node if check.name == "throttling")
    assert (check.subject, check.verdict) == (f"GPU 1 ({UUIDS[1]})" if verdict == "fail" else "all GPUs", verdict)
    assert check.reason.endswith(words)
    assert results.verdict == verdict, results.reason


def test_a_narrow_slot(fake_nvml: Tell, run: Callable[..., Results]) -> None:
    """Eight lanes of sixteen."""
    fake_nvml(devices=2, pcie_width=8)
    assert _verdicts(run())["pcie"] == (f"GPU 1 ({UUIDS[1]})", "fail")


@pytest.fixture
def stranger() -> Iterator[int]:
    """Id of a process that this one is no ancestor of."""
    done = subprocess.run(("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"), capture_output=True, check=True)
    pid = int(done.stdout)
    yield pid
    os.kill(pid, signal.SIGKILL)


def test_a_stranger_on_a_gpu(
    fake_nvml: Tell, run: Callable[..., Results], monkeypatch: pytest.MonkeyPatch, stranger: int
) -> None:
    """It is named when the run begins, and its points are flagged; a child of this process is the run's own."""
    monkeypatch.setattr(gpu_processes, "sees_driver_pids", lambda: True)
    notes: list[str] = []
    monkeypatch.setattr(Attempts, "note", lambda _self, text: notes.append(text))
    with subprocess.Popen(("sleep", "600")) as own:
        fake_nvml(devices=2, processes=f"{stranger}:{3 * 2**30}:1,{own.pid}:{2**30}")
        results = run()
        own.kill()
    assert notes[0] == f"GPU 1: process {stranger} (sleep, 3 GiB) is on it; beside it no scaling row passes"
    assert not [note for note in notes if str(own.pid) in note]
    assert "not_alone" in results.points[0].flags


def test_a_node_of_ones_own(fake_nvml: Tell, run: Callable[..., Results], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_processes, "sees_driver_pids", lambda: True)
    fake_nvml(devices=2)
    assert "not_alone" not in run().points[0].flags
