"""The snapshot of a machine."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybench.machine import environment
from pybench.machine.environment import snapshot
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("machine.environment")

Tell = Callable[..., None]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Tests put other checkouts in the place of the one whose code this process runs."""
    environment._git.cache_clear()
    yield
    environment._git.cache_clear()


def test_gpus_driver_and_fabric(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the driver; NVLink joins all pairs."""
    fake_nvml()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine = snapshot()
    assert (machine.kind, machine.fabric, machine.gpu_count) == ("h200", "nvlink", 2)
    assert machine.gpu_names == ("NVIDIA H200", "NVIDIA H200")
    assert machine.gpu_vram_gib == tuple(gpu.vram_gib for gpu in machine.gpus)
    assert (machine.cuda_driver, machine.gpu_reason) == ("13.0", None)
    assert machine.driver is not None
    assert re.fullmatch(r"580\.\d+\.fake", machine.driver)
    assert machine.topology[0][0] == "X"
    assert machine.topology[0][1].startswith("NV")


def test_one_visible_gpu_has_no_fabric(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing joins it to anything."""
    fake_nvml()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    machine = snapshot()
    assert (machine.fabric, machine.gpu_count, machine.gpus[0].index) == ("none", 1, 1)


def test_two_boards_in_one_host(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each GPU has its figures; a point of both gets the least."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    boards = {"name": "NVIDIA GeForce RTX 4090;NVIDIA A100-PCIE-40GB", "capability": "8.9;8.0"}
    fake_nvml(**boards, memory_mib="24564;40960", limit_w="300;250", default_limit_w="450;250")
    machine = snapshot()
    assert (machine.kind, machine.gpu_vram_gib) == ("mixed", (23.99, 40.0))
    assert [gpu.compute_capability for gpu in machine.gpus] == ["8.9", "8.0"]
    assert [(gpu.power_limit_w, gpu.power_limit_default_w) for gpu in machine.gpus] == [(300, 450), (250, 250)]
    devices = machine.devices
    assert (devices.memory_bytes, devices.compute_capability) == (23.99 * 2**30, (8, 0))


def test_a_lost_gpu_is_told(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other is the machine's."""
    fake_nvml(fail="nvmlDeviceGetUUID:15:0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine = snapshot()
    assert (machine.gpu_count, machine.gpus[0].index, machine.gpu_reason) == (1, 1, None)
    assert machine.gpu_faults == (SENTENCES["a_lost_gpu_is_told"],)


def test_a_gpu_that_takes_no_programs_is_left_out(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that drives a display; every worker on it would fail."""
    fake_nvml(compute_mode="3;2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine = snapshot()
    assert (machine.gpu_count, machine.gpus[0].index) == (1, 0)
    (fault,) = machine.gpu_faults
    assert fault == SENTENCES["a_gpu_that_takes_no_programs_is_left"]


def test_without_gpus_the_rest_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the reason is told."""
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")
    machine = snapshot()
    assert (machine.kind, machine.gpus, machine.driver) == ("cpu", (), None)
    assert machine.gpu_reason == SENTENCES["without_gpus_the_rest_is_known"]
    assert machine.cpu_cores == len(os.sched_getaffinity(0))
    assert machine.memory_bytes is not None
    assert machine.memory_bytes > 2**28
    assert (machine.kernel, machine.python) == (platform.release(), platform.python_version())
    assert machine.packages["pybench"]


def test_a_field_is_read_or_unknown(tmp_path: Path) -> None:
    """From the first line that begins with its name, if there is a file with one."""
    table = tmp_path / "meminfo"
    table.write_text("MemFree: 1 kB\nMemTotal:  16 kB\nMemTotal: 2 kB\n")
    assert environment._field(str(table), "MemTotal") == "16 kB"
    assert environment._field(str(table), "SwapTotal") is None
    assert environment._field(str(tmp_path / "nothing"), "MemTotal") is None


def test_unknown_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No /proc, no git, no file that names the system: nothing is made up."""
    monkeypatch.setattr(environment, "_field", lambda _path, _name: None)
    monkeypatch.setattr(environment, "_has_os_release", lambda: False)
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    machine = snapshot()
    assert machine.cpu_model is None
    assert machine.memory_bytes is None
    assert machine.operating_system is None
    assert (machine.git_commit, machine.git_dirty) == (None, None)


def test_git_tells_commit_and_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A checkout with an untracked file is dirty."""
    for command in (
        "init -q",
        "-c user.name=n -c user.email=e commit -q --allow-empty -m m",
    ):
        assert os.waitstatus_to_exitcode(os.system(f"git -C {tmp_path} {command}")) == 0
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    machine = snapshot()
    assert machine.git_commit is not None
    assert len(machine.git_commit) == 40
    assert machine.git_dirty is False
    (tmp_path / "new").touch()
    environment._git.cache_clear()
    assert snapshot().git_dirty is True


def test_a_missing_git_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not an error."""
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert snapshot().git_commit is None
