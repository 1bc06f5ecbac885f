"""Which processes on a GPU are a run's own: workers on this machine, in containers, behind a server."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pybench.machine.gpu_processes import ProcessFacts
from pybench.model.container import ContainerRun
from pybench.run.gpu_observation import is_foreign

MARK = "20261122T000000Z-s-0a1b2c3d"
OURS, OTHERS = "a" * 64, "b" * 64
CONTAINER = ContainerRun(id=OURS, image_id="i", exit_code=None, start_s=None)
HERE = ProcessFacts(
    name="python3", ancestors=(900, 1), environment=(b"PATH=/bin",), cgroup="0::/\n", in_container=False
)


def within(cgroup: str, environment: tuple[bytes, ...] | None = None) -> ProcessFacts:
    return ProcessFacts(name="python3", ancestors=(900, 1), environment=environment, cgroup=cgroup, in_container=True)


def changed(**changes: Any) -> ProcessFacts:
    return ProcessFacts(**{**vars(HERE), **changes})


@pytest.mark.parametrize(
    ("facts", "foreign"),
    [
        (HERE, True),
        (changed(environment=None), True),  # another user's
        (changed(environment=(f"PYBENCH_ATTEMPT={MARK}/0a".encode(),)), False),
        (changed(environment=(b"PYBENCH_ATTEMPT=20261122T000000Z-t-0a1b2c3d/0a",)), True),  # another run's
        (changed(environment=(), ancestors=(901, os.getpid(), 1)), False),  # a daemon of a worker's
        (changed(name="nvidia-cuda-mps"), False),
        (within(f"0::/docker/{OTHERS}\n"), True),
    ],
)
def test_beside_workers_in_no_container(facts: ProcessFacts, foreign: bool) -> None:
    assert is_foreign(facts, MARK, None) is foreign


@pytest.mark.parametrize(
    ("facts", "foreign"),
    [
        (within(f"0::/system.slice/docker-{OURS}.scope\n"), False),
        (within(f"12:cpu:/user.slice/libpod-{OURS}\n0::/\n"), False),
        (within(f"0::/system.slice/docker-{OTHERS}.scope\n"), True),
        (within(f"0::/system.slice/docker-{OTHERS}.scope\n", environment=(b"A=1",)), True),
        (within("0::/\n"), False),  # nothing shows whose it is
        (HERE, True),
    ],
)
def test_beside_a_worker_in_a_container(facts: ProcessFacts, foreign: bool) -> None:
    assert is_foreign(facts, MARK, CONTAINER) is foreign
