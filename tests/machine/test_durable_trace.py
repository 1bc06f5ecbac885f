"""Durable files: whole after an orderly end, and all but the last reading after a SIGKILL."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pybench.machine.sampler import PowerSampler, read_durable_trace
from pybench.model.errors import MachineError
from pybench.model.trace import PowerTrace

pytest.importorskip("pybench._nvml", reason="the extension is not built")

Tell = Callable[..., None]
UUIDS = tuple(f"GPU-{i:08}-fake-4000-8000-{i:012}" for i in range(4))
PLANES = ("counter", "series", "polled", "slow", "stalls")
SOURCES = (
    "blocks",
    "capability",
    "clock",
    "gpu",
    "hunt",
    "nvml_api",
    "power_sampler",
    "recording",
    "rhythm",
    "session",
)
NUM_KILLS = 100
NUM_COUNTED = 17  # 16 GPUs and none, of calls made and of calls answered


def recorded(file: Path, length_s: float = 0.4) -> PowerTrace:
    sampler = PowerSampler(UUIDS[:2], file=file)
    sampler.start()
    time.sleep(length_s)
    return sampler.stop()


def test_file_holds_what_stop_hands_over(fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml(load="square:100:600:50")
    trace = recorded(tmp_path / "power")
    again = read_durable_trace(tmp_path / "power")
    assert (again.start_ns, again.end_ns, again.boot_id) == (trace.start_ns, trace.end_ns, trace.boot_id)
    assert again.num_unwritten == 0
    for ours, theirs in zip(trace.gpus, again.gpus, strict=True):
        plain = [name for name in vars(ours) if name not in PLANES]
        assert [getattr(ours, name) for name in plain] == [getattr(theirs, name) for name in plain]
        for plane in PLANES:
            for name, values in vars(getattr(ours, plane)).items():
                np.testing.assert_array_equal(values, getattr(getattr(theirs, plane), name))


def test_file_is_readable_while_it_is_written(fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml()
    with PowerSampler(UUIDS[:1], file=tmp_path / "power") as sampler:
        while len(read_durable_trace(tmp_path / "power").gpus[0].polled.t_ns) < 5:
            time.sleep(0.05)
        seen = list(sampler.snapshot().gpus[0].counter.energy_mj)
        assert list(read_durable_trace(tmp_path / "power").gpus[0].counter.energy_mj)[: len(seen)] == seen


def test_existing_file_is_not_overwritten(fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml()
    (tmp_path / "power").write_text("precious")
    with pytest.raises(MachineError, match=r"^power sampler: .*/power: File exists$"):
        PowerSampler(UUIDS[:1], file=tmp_path / "power").start()
    assert (tmp_path / "power").read_text() == "precious"


def test_no_file_is_left_where_a_gpu_can_not_be_opened(fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml()
    with pytest.raises(MachineError, match="Not Found"):
        PowerSampler(("GPU-x",), file=tmp_path / "power").start()
    assert list(tmp_path.iterdir()) == []


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"/power: No such file or directory$"):
        read_durable_trace(tmp_path / "power")


@pytest.mark.parametrize("content", [b"", b"PYBPOWER", bytes(5000)])
def test_other_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "power").write_bytes(content)
    with pytest.raises(MachineError, match=r"/power: no power recording of pybench's$"):
        read_durable_trace(tmp_path / "power")


def test_other_version(fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml()
    recorded(tmp_path / "power", 0.0)
    with (tmp_path / "power").open("r+b") as file:
        file.seek(8)
        file.write(struct.pack("<Q", 7))
    with pytest.raises(MachineError, match=r"/power: version 7, this pybench reads 1; read it with the pybench that"):
        read_durable_trace(tmp_path / "power")


def test_truncated(fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml()
    recorded(tmp_path / "power", 0.0)
    os.truncate(tmp_path / "power", 5000)
    with pytest.raises(MachineError, match=r"/power: cut short$"):
        read_durable_trace(tmp_path / "power")


@pytest.mark.parametrize(("gpu", "plane"), [(99, 0), (0, 99)])
def test_damaged(fake_nvml: Tell, tmp_path: Path, gpu: int, plane: int) -> None:
    fake_nvml()
    recorded(tmp_path / "power", 0.0)
    size = (tmp_path / "power").stat().st_size
    with (tmp_path / "power").open("ab") as file:
        file.write(struct.pack("<QII", 0, gpu, plane) + bytes(48))
    with pytest.raises(MachineError, match=rf"/power: damaged at byte {size}$"):
        read_durable_trace(tmp_path / "power")


def test_full_disk_is_counted(fake_nvml: Tell, tmp_path: Path) -> None:
    """A limit on file size stands in for a full disk: writing fails in the middle of a record."""
    fake_nvml()
    recorded(tmp_path / "fits", 0.0)
    blocks_bytes = (tmp_path / "fits").stat().st_size // 2**17 * 2**17 + 2**17
    file = tmp_path / "power"
    script = f"""
import resource, time
from pathlib import Path
from pybench.machine.sampler import PowerSampler
resource.setrlimit(resource.RLIMIT_FSIZE, ({blocks_bytes + 2000}, resource.RLIM_INFINITY))
sampler = PowerSampler({UUIDS[:2]!r}, file=Path({str(file)!r}), counter_period_s=0.001)
sampler.start()
while not sampler.snapshot().num_unwritten:
    time.sleep(0.05)
trace = sampler.stop()
print(trace.num_unwritten, sum(len(gpu.counter.energy_mj) for gpu in trace.gpus))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    unwritten, in_memory = map(int, done.stdout.split())
    again = read_durable_trace(file)
    assert again.num_unwritten == unwritten
    assert 0 < sum(len(gpu.counter.energy_mj) for gpu in again.gpus) < in_memory


def answered(counts: Path, function: str) -> list[int]:
    """Answered calls about each GPU, from the file in which the fake counts."""
    entry_bytes = 48 + 2 * NUM_COUNTED * 8
    content = counts.read_bytes()
    for at in range(0, len(content), entry_bytes):
        entry = content[at : at + entry_bytes]
        if entry[:48].rstrip(b"\0").decode() == function:
            return list(struct.unpack(f"<{2 * NUM_COUNTED}Q", entry[48:]))[NUM_COUNTED:]
    return [0] * NUM_COUNTED


@pytest.mark.slow
def test_sigkill_loses_one_record_at_most(native: Callable[..., Path], fake_nvml: Tell, tmp_path: Path) -> None:
    fake_nvml(devices=4)
    sources = ("tests/native/sampler_victim.cpp", *(f"csrc/{name}.cpp" for name in SOURCES))
    victim = native(tmp_path / "victim", *sources, "-O2")
    chance = random.Random(1)
    lost = []
    for number in range(NUM_KILLS):
        file, counts = tmp_path / f"power{number}", tmp_path / f"counts{number}"
        environment = {**os.environ, "FAKE_NVML_COUNTS": str(counts)}
        with subprocess.Popen([victim, file, *UUIDS], env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
            time.sleep(chance.uniform(0.0, 0.15))
            process.kill()
        lost += lost_records(read_durable_trace(file), counts)
        file.unlink()
    assert len(lost) == NUM_KILLS * len(UUIDS)
    assert set(lost) <= {0, 1}


def lost_records(trace: PowerTrace, counts: Path) -> list[int]:
    """For each GPU, readings that the driver answered and that are not in the trace."""
    counter = answered(counts, "nvmlDeviceGetTotalEnergyConsumption")
    fields = answered(counts, "nvmlDeviceGetFieldValues")
    module_scope = answered(counts, "nvmlDeviceGetMultiGpuBoard")  # followed by one reading of fields for itself
    slow = answered(counts, "nvmlDeviceGetCurrentClocksEventReasons")  # the last call of a row
    lost = []
    for gpu in trace.gpus:
        i = UUIDS.index(gpu.uuid)
        polled = max(fields[i] - module_scope[i], 0)
        lost.append(
            counter[i] - len(gpu.counter.energy_mj) + polled - len(gpu.polled.t_ns) + slow[i] - len(gpu.slow.t_ns)
        )
    return lost
