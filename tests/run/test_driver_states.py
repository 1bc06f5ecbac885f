"""A driver that is there and fails ends a run with its reason and remedy; it never becomes a run of CPU cores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pybench.machine.environment import cpu_quota, snapshot
from pybench.machine.gpus import find_gpus, hardware_sign
from pybench.model.errors import MachineError
from pybench.run.suite_plan import require_working_gpus
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("run.driver_states")

Tell = Callable[..., None]

pytestmark = pytest.mark.usefixtures("fresh_nvml")


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"fail": "nvmlInit:18"}, "restart the machine"),
        ({"fail": "nvmlInit:4"}, "/dev/nvidia*"),
        ({"fail": "nvmlInit:9"}, "modprobe nvidia"),
        ({"fail": "nvmlInit:999"}, "start the container again"),
        ({"fail": "nvmlInit:1"}, "nvidia-smi"),
        ({"devices": 0}, "--gpus all"),
    ],
)
def test_a_driver_that_fails_is_refused_with_its_remedy(
    fake_nvml: Tell, settings: dict[str, object], remedy: str
) -> None:
    """Only a request for CPU cores goes on without the GPUs."""
    fake_nvml(**settings)
    machine = snapshot()
    with pytest.raises(MachineError) as raised:
        require_working_gpus(machine, None)
    assert remedy in str(raised.value)
    require_working_gpus(machine, "cpu")


def test_a_mig_instance_is_refused(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of a MIG instance does not measure CPU cores instead."""
    fake_nvml(devices=1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-00000000-fake-5000-8000-000000000000")
    with pytest.raises(MachineError, match="MIG"):
        require_working_gpus(snapshot(), None)


@pytest.mark.parametrize("setting", ["", "-1"])
def test_no_visible_device_asks_for_cpu_cores(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    """An empty CUDA_VISIBLE_DEVICES is a request, whatever the driver does."""
    fake_nvml(fail="nvmlInit:18")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    require_working_gpus(snapshot(), None)


def test_a_slow_driver_is_announced_and_refused(fake_nvml: Tell) -> None:
    """A time limit never changes the kind of device."""
    fake_nvml(hang="nvmlDeviceGetCount_v2:3000")
    inventory = find_gpus(limit_s=0.2)
    assert inventory.remedy == SENTENCES["a_slow_driver_is_announced_and"]


def test_hardware_without_a_library_is_seen(tmp_path: Path) -> None:
    """A kernel module or a PCI device shows a GPU that a container was not given; other devices do not."""
    assert hardware_sign(tmp_path) is None
    device = tmp_path / "sys/bus/pci/devices/0000:19:00.0"
    device.mkdir(parents=True)
    (device / "class").write_text("0x030200\n")
    (device / "vendor").write_text("0x1002\n")
    assert hardware_sign(tmp_path) is None
    (device / "vendor").write_text("0x10de\n")
    assert hardware_sign(tmp_path) == SENTENCES["hardware_without_a_library_is_seen"]
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    assert hardware_sign(tmp_path) == "/proc/driver/nvidia is there"


@pytest.mark.parametrize(
    ("line", "files", "expected"),
    [
        ("0::/pod", {"sys/fs/cgroup/pod/cpu.max": "50000 100000"}, 0.5),
        ("0::/pod", {"sys/fs/cgroup/cpu.max": "250000 100000", "sys/fs/cgroup/pod/cpu.max": "max 100000"}, 2.5),
        (
            "4:cpu,cpuacct:/elsewhere",
            {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"},
            0.5,
        ),
        ("1:cpu:/", {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "1"}, None),
    ],
)
def test_cpu_quotas_of_both_versions(tmp_path: Path, line: str, files: dict[str, str], expected: float | None) -> None:
    """The smallest quota on the way to the mount's root counts."""
    for name, text in {"proc/self/cgroup": line, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert cpu_quota(tmp_path) == expected
