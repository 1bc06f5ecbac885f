"""A starter or a worker that is killed at any moment leaves nothing behind; test_orphans.py kills the host."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pybench.run.engines.local import Local
from pybench.run.engines.process import processes_marked
from tests.run.engines.test_starter import Stage

KILLS = 100
LONGEST_S = 0.25
PATIENCE_S = 30.0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Workers that would run for ten minutes."""
    made = Stage(tmp_path)
    made.backend(work="time.sleep(600)")
    yield made
    made.launcher.close()


def _processes(stage: Stage, role: str) -> set[int]:
    """Processes of the role: the starter and its guardian; or the worker, its guardian and whatever they started."""
    marked = set(processes_marked(stage.token))
    guardians = {pid for pid in marked if _parent(pid) == os.getpid()}
    starters = guardians | {pid for pid in marked if _parent(pid) in guardians}
    return starters if role == "starter" else marked - starters


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


@pytest.mark.parametrize("role", ["starter", "worker"])
def test_nothing_is_left_of_100_kills(stage: Stage, role: str) -> None:
    """SIGKILL for any process of the role, its guardian included, at moments from a fixed seed: before the fork too.

    All processes of the role end by themselves. A killed starter's workers end, too; a killed worker's starter goes on.
    """
    draws = random.Random(1)
    num_killed = 0
    for kill in range(KILLS):
        worker = stage.start(kill)
        time.sleep(draws.random() * LONGEST_S)
        if victims := sorted(_processes(stage, role)):
            with suppress(ProcessLookupError):
                os.kill(draws.choice(victims), signal.SIGKILL)
                num_killed += 1
            assert not _left(stage, role), f"kill {kill}"
        worker.end()
        assert not _left(stage, "worker"), f"kill {kill}"
        if role == "starter":
            stage.launcher.close()
            stage.launcher = Local(sys.executable)
    assert num_killed > KILLS / 2
    stage.launcher.close()
    assert not tuple(processes_marked(stage.token))


def _left(stage: Stage, role: str) -> set[int]:
    """The role's processes, once there are none or patience ends; of a starter those of its workers, too."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        left = set(processes_marked(stage.token)) if role == "starter" else _processes(stage, role)
        if not left:
            break
        time.sleep(0.01)
    return left
