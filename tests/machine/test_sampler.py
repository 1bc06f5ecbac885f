"""The sampler against the fake driver, whose joules are known in closed form."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pybench.compute.energy import attempt_energy
from pybench.machine import sampler as sampler_module
from pybench.machine.sampler import PowerSampler, sampler_unavailable_reason
from pybench.model.errors import MachineError
from pybench.model.trace import PowerTrace

pytest.importorskip("pybench._nvml", reason="the extension is not built")

Tell = Callable[..., None]
UUIDS = tuple(f"GPU-0000000{i}-fake-4000-8000-00000000000{i}" for i in range(2))


def record(uuids: tuple[str, ...] = UUIDS, *, length_s: float = 1.2) -> tuple[PowerTrace, int, int]:
    """A trace, and a window well inside it."""
    sampler = PowerSampler(uuids)
    sampler.start()
    time.sleep(0.35)
    start_ns = time.monotonic_ns()
    time.sleep(length_s)
    end_ns = time.monotonic_ns()
    time.sleep(0.15)
    return sampler.stop(), start_ns, end_ns


def square_energy_j(t_s: float, low_w: float, high_w: float, half_s: float) -> float:
    """Integral from 0 to ``t_s``, low half first."""
    cycles, rest_s = divmod(t_s, 2 * half_s)
    return cycles * half_s * (low_w + high_w) + min(rest_s, half_s) * low_w + max(rest_s - half_s, 0.0) * high_w


def test_constant_load(fake_nvml: Tell) -> None:
    fake_nvml(load="constant:400")
    trace, start_ns, end_ns = record()
    truth_j = 400 * (end_ns - start_ns) / 1e9
    gpus = attempt_energy(trace, start_ns, end_ns, None).gpus
    assert [gpu.uuid for gpu in gpus] == list(UUIDS)
    assert [gpu.method for gpu in gpus] == ["counter+series"] * 2
    for gpu in gpus:
        assert gpu.energy_j == pytest.approx(truth_j, rel=0.005)
        assert gpu.energy_low_j is not None
        assert gpu.energy_high_j is not None
        assert gpu.energy_low_j <= truth_j <= gpu.energy_high_j
        assert gpu.energy_high_j - gpu.energy_low_j < 0.02 * truth_j
        assert gpu.max_power_w == 400.0


@pytest.mark.parametrize("half_ms", [200, 330])
def test_square_load(fake_nvml: Tell, fake_epoch_ns: int, half_ms: int) -> None:
    fake_nvml(load=f"square:100:600:{half_ms}")
    trace, start_ns, end_ns = record(length_s=1.6)
    first_j, last_j = (
        square_energy_j((t_ns - fake_epoch_ns) / 1e9, 100, 600, half_ms / 1e3) for t_ns in (start_ns, end_ns)
    )
    for gpu in attempt_energy(trace, start_ns, end_ns, None).gpus:
        assert gpu.energy_j == pytest.approx(last_j - first_j, rel=0.01)
        assert gpu.energy_low_j is not None
        assert gpu.energy_high_j is not None
        assert gpu.energy_low_j <= last_j - first_j <= gpu.energy_high_j
        assert gpu.max_power_w == 600.0


def test_old_driver_has_only_counter_and_average(
    fake_nvml: Tell, old_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml(load="constant:250")
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", str(old_library))
    trace, start_ns, end_ns = record(UUIDS[:1])
    (gpu,) = trace.gpus
    assert gpu.state == "ok"
    assert list(gpu.series.realtime_ns) == []
    assert set(gpu.polled.instant_mw) == {-1}
    assert set(gpu.polled.average_mw) == {250_000}
    (energy,) = attempt_energy(trace, start_ns, end_ns, None).gpus
    assert energy.method == "counter"
    assert energy.energy_j == pytest.approx(250 * (end_ns - start_ns) / 1e9, rel=0.005)


def test_columns(fake_nvml: Tell) -> None:
    fake_nvml(load="constant:400")
    before_ns = time.monotonic_ns()
    trace, _, _ = record(UUIDS[:1], length_s=0.2)
    assert before_ns <= trace.start_ns < trace.end_ns <= time.monotonic_ns()
    (gpu,) = trace.gpus
    assert (gpu.uuid, gpu.index, gpu.name, gpu.state, gpu.failed_calls) == (UUIDS[0], 0, "NVIDIA H200", "ok", 0)
    assert np.all(np.asarray(gpu.counter.before_ns) <= np.asarray(gpu.counter.after_ns))
    assert np.all(np.diff(np.asarray(gpu.counter.energy_mj).astype(np.int64)) >= 0)
    # One stamp for each sample, 20 ms apart, none drained twice.
    assert np.all(np.abs(np.diff(gpu.series.realtime_ns) - 20_000_000) < 2_000_000)
    assert set(gpu.polled.instant_mw) == {400_000}
    assert set(gpu.slow.temperature_c) == {55}
    assert set(gpu.slow.sm_clock_mhz) == {1980}
    assert set(gpu.slow.clock_event_reasons) == {0}


def test_lost_gpu_keeps_what_was_recorded(fake_nvml: Tell) -> None:
    fake_nvml(load="constant:400", fail="*:15:1@after=400")
    sampler = PowerSampler(UUIDS)
    sampler.start()
    time.sleep(0.9)
    assert sampler.latest_power_w() == {UUIDS[0]: 400.0, UUIDS[1]: None}
    trace = sampler.stop()
    assert [gpu.state for gpu in trace.gpus] == ["ok", "lost"]
    assert [gpu.failed_calls for gpu in trace.gpus] == [0, 1]
    assert 0 < len(trace.gpus[1].polled.t_ns) < len(trace.gpus[0].polled.t_ns)
    start_ns = trace.start_ns + 200_000_000
    ok, lost = attempt_energy(trace, start_ns, trace.end_ns - 200_000_000, None).gpus
    assert ok.energy_j is not None
    assert lost.energy_j is None
    assert lost.flags == ("lost", "insufficient")


@pytest.mark.parametrize(("code", "state"), [(4, "no_permission"), (3, "not_supported"), (999, "error")])
def test_failing_calls_become_a_state(fake_nvml: Tell, code: int, state: str) -> None:
    readings = ("TotalEnergyConsumption", "Samples", "FieldValues", "PowerUsage")
    fake_nvml(fail=",".join(f"nvmlDeviceGet{reading}:{code}:0" for reading in readings))
    trace, start_ns, end_ns = record(length_s=0.1)
    assert [gpu.state for gpu in trace.gpus] == [state, "ok"]
    energy = attempt_energy(trace, start_ns, end_ns, None)
    assert energy.gpus[0].flags == (state, "insufficient")
    assert energy.energy_j is None


def test_one_plane_without_permission_leaves_the_others(fake_nvml: Tell) -> None:
    fake_nvml(load="constant:400", fail="nvmlDeviceGetTotalEnergyConsumption:4:0")
    trace, start_ns, end_ns = record(UUIDS[:1], length_s=1.0)
    assert trace.gpus[0].state == "ok"
    assert trace.gpus[0].failed_calls == 1  # a refused plane is not asked again
    (energy,) = attempt_energy(trace, start_ns, end_ns, None).gpus
    assert energy.method == "series"
    assert energy.energy_j == pytest.approx(400 * (end_ns - start_ns) / 1e9, rel=0.005)


def test_hung_call_does_not_hold_up_stop(fake_nvml: Tell) -> None:
    fake_nvml(hang="nvmlDeviceGetTotalEnergyConsumption:3000:1")
    sampler = PowerSampler(UUIDS)
    sampler.start()
    time.sleep(0.2)
    stopped: list[PowerTrace] = []
    thread = threading.Thread(target=lambda: stopped.append(sampler.stop()))
    thread.start()
    thread.join(timeout=2.5)  # the hung call itself takes longer
    assert len(stopped) == 1
    assert [gpu.state for gpu in stopped[0].gpus] == ["ok", "stalled"]


def test_context_manager_and_restart(fake_nvml: Tell) -> None:
    fake_nvml(load="constant:400")
    sampler = PowerSampler(UUIDS[:1])
    assert sampler.latest_power_w() == {UUIDS[0]: None}
    for _ in range(2):
        with sampler:
            time.sleep(0.05)
            assert sampler.latest_power_w() == {UUIDS[0]: 400.0}
    with sampler:
        sampler.stop()


def test_stop_without_start() -> None:
    with pytest.raises(MachineError, match=r"^power sampler: stop without being started$"):
        PowerSampler(UUIDS).stop()


def test_unknown_uuid(fake_nvml: Tell) -> None:
    fake_nvml()
    with pytest.raises(
        MachineError, match=r"^power sampler: nvmlDeviceGetHandleByUUID on GPU-x: Not Found \(code 6\)$"
    ):
        PowerSampler(("GPU-x",)).start()


def test_available(fake_nvml: Tell) -> None:
    fake_nvml()
    assert sampler_unavailable_reason() is None


def test_unavailable_without_gpu(fake_nvml: Tell) -> None:
    fake_nvml(devices=0)
    assert sampler_unavailable_reason() == "the NVIDIA driver shows no GPU"


def test_unavailable_when_the_driver_is_not_loaded(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlInit:9")
    assert sampler_unavailable_reason() == "no NVIDIA driver: nvmlInit_v2: Driver Not Loaded (code 9)"


def test_unavailable_without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")
    expected = "no NVIDIA driver: dlopen: /nowhere/libnvidia-ml.so.1 not found (code 12)"
    assert sampler_unavailable_reason() == expected
    with pytest.raises(MachineError, match=r"libnvidia-ml\.so\.1 not found"):
        PowerSampler(UUIDS).start()


def test_unavailable_without_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "_nvml", None)
    monkeypatch.setattr(sampler_module, "_import_problem", "no module named _nvml", raising=False)
    expected = "extension not built: no module named _nvml; reinstall with `pip install .`"
    assert sampler_unavailable_reason() == expected
    with pytest.raises(MachineError, match="extension not built"):
        PowerSampler(UUIDS).start()
