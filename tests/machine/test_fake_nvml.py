"""The fake driver's physics, against plain numerical integration of its load."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pynvml
import pytest

from pybench.model.errors import MachineError
from pybench.power.recorder import PowerRecorder
from pybench.power.trace import PowerTrace
from tests.processes import wait_for

pytest.importorskip("pybench._nvml", reason="the extension is not built")

Tell = Callable[..., None]
Truth = Callable[[int | None, int], float]
UUIDS = tuple(f"GPU-{i:08}-fake-4000-8000-{i:012}" for i in range(2))
STEP_NS = 100_000
TAU_NS = 10_900_000
AVERAGE_FIELD = 185
LOADS = ("square:100:600:50", "pulse:100:600:23:0.25", "decode:300:500:30", "bursty:100:700:1")


def sampled(length_s: float) -> PowerTrace:
    sampler = PowerRecorder(UUIDS)
    sampler.start()
    time.sleep(length_s)
    return sampler.stop()


def column(values: Any) -> Any:
    return np.asarray(values).astype(np.int64)


@pytest.mark.parametrize("load", LOADS)
def test_series_is_the_load_behind_a_low_pass(fake_nvml: Tell, fake_truth_j: Truth, load: str) -> None:
    fake_nvml(load=load, sensor="h200")
    trace = sampled(0.5)
    for gpu in trace.gpus:
        stamps_ns = column(gpu.series.realtime_ns) - trace.offsets.realtime_offset_ns[0]
        stamps_ns, power_w = stamps_ns[-30:], column(gpu.series.power_mw)[-30:] / 1e3
        # The truth's own power every 0.1 ms, a third of a second further back than the first sample.
        times_ns = np.arange(stamps_ns[0] - 330_000_000, stamps_ns[-1] + STEP_NS, STEP_NS)
        truth_w = np.diff([fake_truth_j(gpu.index, int(t_ns)) for t_ns in times_ns]) / (STEP_NS / 1e9)
        smoothed_w = [truth_w[0]]
        for now_w in truth_w:
            smoothed_w.append(smoothed_w[-1] + (now_w - smoothed_w[-1]) * -np.expm1(-STEP_NS / TAU_NS))
        # Stamps are whole microseconds of another clock, powers whole steps of 0.323 W.
        np.testing.assert_allclose(power_w, np.interp(stamps_ns, times_ns, smoothed_w), atol=6.0)
        assert np.all(np.abs(power_w / 0.323 - np.round(power_w / 0.323)) < 0.01)


@pytest.mark.parametrize("load", LOADS)
def test_truth_is_the_integral_of_live_power(fake_nvml: Tell, fake_truth_j: Truth, load: str) -> None:
    """An ideal sensor's samples are points of the load: the truth's slope around them."""
    fake_nvml(load=load)
    trace = sampled(0.3)
    for gpu in trace.gpus:
        stamps_ns = column(gpu.series.realtime_ns)[-50:] - trace.offsets.realtime_offset_ns[0]
        around_w = [
            (fake_truth_j(gpu.index, int(t_ns) + STEP_NS) - fake_truth_j(gpu.index, int(t_ns) - STEP_NS)) / 2 / 1e-4
            for t_ns in stamps_ns
        ]
        same = np.isclose(around_w, column(gpu.series.power_mw)[-50:] / 1e3, atol=0.01)
        assert np.mean(same) > 0.5  # the others lie on a step of the load


def test_series_spacing_on_h200(fake_nvml: Tell) -> None:
    fake_nvml(sensor="h200")
    trace = sampled(0.2)
    spacing_ms = np.diff(column(trace.gpus[0].series.realtime_ns)) / 1e6
    # 20 ms, each stamp off by 3 at most and one in 50 late by up to 11; one in 200 is lost, now and then two in a row.
    assert np.all((spacing_ms >= 3) & (spacing_ms < 80))
    assert 19 < np.mean(spacing_ms) < 22
    assert np.std(spacing_ms) > 1


def test_polled_fields_refresh_ten_times_a_second(
    fake_nvml: Tell, fake_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read every millisecond or so: a change came after the last reading of the old value."""
    fake_nvml(load="bursty:100:700:1", sensor="h200")
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(fake_library)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    before_ns, after_ns, average_mw = [], [], []
    end_ns = time.monotonic_ns() + 2_000_000_000
    while time.monotonic_ns() < end_ns:
        before_ns.append(time.monotonic_ns())
        average_mw.append(pynvml.nvmlDeviceGetFieldValues(gpu, [AVERAGE_FIELD])[0].value.uiVal)
        after_ns.append(time.monotonic_ns())
        time.sleep(1e-3)
    pynvml.nvmlShutdown()
    last_old = np.flatnonzero(np.diff(average_mw))
    assert len(last_old) > 3
    assert np.all(np.asarray(after_ns)[last_old[1:] + 1] - np.asarray(before_ns)[last_old[:-1]] > 45_000_000)


def test_counter_lags_as_told(fake_nvml: Tell, fake_truth_j: Truth, fake_epoch_ns: int) -> None:
    fake_nvml(counter_lag_ms=30)
    (gpu, _) = sampled(0.3).gpus
    energy_j = column(gpu.counter.energy_mj)[-1] / 1e3 - 5e6
    late_ms = []
    for read_ns in (column(gpu.counter.before_ns)[-1], column(gpu.counter.after_ns)[-1]):
        published_ns = (read_ns - fake_epoch_ns) // 100_000_000 * 100_000_000 + fake_epoch_ns
        late_ms.append(round((fake_truth_j(0, int(published_ns)) - energy_j) / 400 * 1e3))
    assert 30 in late_ms  # a publication may come while the call is made, or while it returns


def test_latencies_take_their_time(fake_nvml: Tell) -> None:
    fake_nvml(latency="h200")
    (gpu, _) = sampled(0.3).gpus
    assert np.min(column(gpu.counter.after_ns) - column(gpu.counter.before_ns)) >= 2_300_000


@pytest.mark.parametrize("call", ["Init", "DeviceGetHandleByUUID"])
def test_a_call_that_outlives_its_driver_changes_no_later_one(
    fake_nvml: Tell, fake_library: Path, fake_truth_j: Truth, fake_answered: Callable[[str, int], int], call: str
) -> None:
    """Of a test that is over: neither the settings of a later test nor its counts of calls."""
    outlived = ctypes.CDLL(str(fake_library)).fake_nvml_outlived
    before = outlived()
    fake_nvml(hang=f"nvml{call}:3000")
    with pytest.raises(MachineError, match="has not answered"):
        PowerRecorder(UUIDS[:1], start_limit_s=0.2).start()
    fake_nvml(hang="", load="constant:100")
    sampled(0.1)
    answered = fake_answered("nvmlDeviceGetHandleByUUID", 0)
    wait_for(lambda: outlived() > before)
    time.sleep(0.2)  # its thread goes on to other calls
    now_ns = time.monotonic_ns()
    assert fake_truth_j(0, now_ns) - fake_truth_j(0, now_ns - 1_000_000_000) == pytest.approx(100)
    assert fake_answered("nvmlDeviceGetHandleByUUID", 0) == answered


def test_a_call_that_outlives_its_driver_holds_up_no_later_one(fake_nvml: Tell) -> None:
    """Where the driver allows one at a time."""
    fake_nvml(global_lock=1, hang="nvmlDeviceGetHandleByUUID:45000")
    with pytest.raises(MachineError, match="has not answered"):
        PowerRecorder(UUIDS[:1], start_limit_s=0.2).start()
    fake_nvml(hang="")
    assert [gpu.state for gpu in sampled(0.1).gpus] == ["ok", "ok"]
