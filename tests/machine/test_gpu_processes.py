"""Processes on GPUs: by the fake driver's list, and by a /proc made by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pybench.machine import gpu_processes
from pybench.machine.gpu_processes import ProcessFacts, facts_of, look_once, sees_driver_pids
from tests.threads import ended_threads

Tell = Callable[..., None]
UUIDS = tuple(f"GPU-0000000{i}-fake-4000-8000-00000000000{i}" for i in range(2))
GIB = 2**30
pytestmark = pytest.mark.usefixtures("fresh_nvml")


def make_process(proc: Path, pid: int, parent: int, name: str, *, pids: str, cgroup: str = "0::/\n") -> Path:
    """The files of a process."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0\n")
    (folder / "status").write_text(f"Name:\t{name}\nNSpid:\t{pids}\nThreads:\t1\n")
    (folder / "cgroup").write_text(cgroup)
    return folder


def test_facts(tmp_path: Path) -> None:
    """Ancestors up to the first process, a name with a parenthesis in it, an environment that may be closed."""
    make_process(tmp_path, 1, 0, "init", pids="1")
    make_process(tmp_path, 40, 1, "shim", pids="40")
    inner = make_process(tmp_path, 41, 40, "py) S 7 (", pids="41\t1", cgroup="0::/docker/ab\n")
    (inner / "environ").write_bytes(b"A=1\0B=2\0")
    assert facts_of(41, tmp_path) == ProcessFacts(
        name="py) S 7 (",
        ancestors=(40, 1),
        environment=(b"A=1", b"B=2", b""),
        cgroup="0::/docker/ab\n",
        in_container=True,
    )
    shim = facts_of(40, tmp_path)
    assert shim is not None
    assert (shim.environment, shim.in_container) == (None, False)
    assert facts_of(42, tmp_path) is None


def test_own_process() -> None:
    facts = facts_of(os.getpid())
    assert facts is not None
    assert os.getppid() == facts.ancestors[0]
    assert facts.environment is not None


@pytest.mark.parametrize(("link", "sees"), [("pid:[4026531836]", True), ("pid:[4026532201]", False), (None, False)])
def test_only_the_first_namespace_counts_as_the_driver_does(tmp_path: Path, link: str | None, sees: bool) -> None:
    (tmp_path / "self" / "ns").mkdir(parents=True)
    if link is not None:
        (tmp_path / "self" / "ns" / "pid").symlink_to(link)
    assert sees_driver_pids(tmp_path) is sees


def test_processes_with_their_memory(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU has its list; ended processes are left out."""
    monkeypatch.setattr(gpu_processes, "sees_driver_pids", lambda: True)
    ended = 2**22 + 1  # above the kernel's highest
    fake_nvml(devices=2, processes=f"{os.getpid()}:{3 * GIB}:1,{ended}:{GIB}")
    ((process, facts),) = look_once(UUIDS)
    assert (process.uuid, process.pid, process.memory_bytes) == (UUIDS[1], os.getpid(), 3 * GIB)
    assert process.name == facts.name


def test_nothing_is_claimed_in_a_container(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's ids are those of other processes there."""
    monkeypatch.setattr(gpu_processes, "sees_driver_pids", lambda: False)
    fake_nvml(devices=2, processes=f"{os.getpid()}:{GIB}")
    assert look_once(UUIDS) == ()


def test_a_driver_that_hangs_or_fails(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_processes, "sees_driver_pids", lambda: True)
    fake_nvml(devices=1, processes=f"{os.getpid()}:1", fail="nvmlDeviceGetComputeRunningProcesses_v3:15")
    assert look_once(UUIDS) == ()
    fake_nvml(devices=1, processes=f"{os.getpid()}:1", fail="", hang="nvmlDeviceGetComputeRunningProcesses_v3:3000")
    with ended_threads():
        assert look_once(UUIDS, limit_s=0.05) == ()
    fake_nvml(devices=1, hang="", fail="nvmlInit:999")
    assert look_once(UUIDS) == ()


@pytest.mark.usefixtures("no_driver")
def test_no_driver() -> None:
    assert look_once(UUIDS) == ()
