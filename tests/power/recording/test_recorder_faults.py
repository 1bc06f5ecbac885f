"""Drivers that hang, refuse, lose a GPU or return nonsense: only that GPU's trace is affected, and has a flag."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from pybench.model.errors import MachineError
from pybench.power.estimate import attempt_energy
from pybench.power.recorder import PowerRecorder, sampler_unavailable_reason
from pybench.power.trace import GpuTrace, PowerTrace
from tests.golden_sentences import sentences_of
from tests.standstill import apart_from, standstills

SENTENCES = sentences_of("power.recording.recorder_faults")

pytest.importorskip("pybench._nvml", reason="the extension is not built")

Tell = Callable[..., None]
UUIDS = tuple(f"GPU-{i:08}-fake-4000-8000-{i:012}" for i in range(16))
# Calls that take longer are recorded.
SHORTEST_STALL_NS = 1_000_000_000
READINGS = (
    *("TotalEnergyConsumption", "Samples", "FieldValues", "Temperature", "ClockInfo", "UtilizationRates"),
    "CurrentClocksEventReasons",
)


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits without a limit of its own; the test's time limit ends it."""
    while not condition():
        time.sleep(0.02)


def stop_aside(sampler: PowerRecorder, patience_s: float) -> PowerTrace:
    """Stop on another thread, so that a stop that hangs fails the test."""
    stopped: list[PowerTrace] = []
    thread = threading.Thread(target=lambda: stopped.append(sampler.stop()), daemon=True)
    thread.start()
    thread.join(timeout=patience_s)
    assert stopped, "stop did not come back"
    return stopped[0]


@pytest.mark.parametrize("told", [{}, {"latency": "h200"}], ids=["one poller", "slow calls"])
@pytest.mark.parametrize(("function", "call"), [("TotalEnergyConsumption", 30), ("FieldValues", 4), ("Samples", 4)])
@pytest.mark.parametrize("num_gpus", [2, 16])
def test_hung_call_costs_its_gpu_only(
    fake_nvml: Tell, function: str, call: int, num_gpus: int, told: dict[str, object]
) -> None:
    """The call takes 45 s, as a GSP time-out does; all else must be over long before. The GPU was read before."""
    fake_nvml(devices=num_gpus, hang=f"nvmlDeviceGet{function}:45000:1@call={call}", **told)
    sampler = PowerRecorder(UUIDS[:num_gpus])
    hung_ns = 0

    def others_are_read_while_one_hangs() -> bool:
        nonlocal hung_ns
        trace = sampler.snapshot()
        hung_ns = trace.gpus[1].stalls.start_ns[-1] if trace.gpus[1].state == "stalled" else 0
        read_ns = (gpu.polled.t_ns[-1] for gpu in trace.gpus if gpu.index != 1)
        return hung_ns > 0 and min(read_ns) > hung_ns + 1_500_000_000

    with standstills() as stood_still:
        sampler.start()
        wait_for(others_are_read_while_one_hangs)
        # A call that the machine holds up for long hides its GPU's power meanwhile.
        wait_for(lambda: [uuid for uuid, power_w in sampler.latest_power_w().items() if power_w is None] == [UUIDS[1]])
        trace = stop_aside(sampler, patience_s=20)
    assert time.monotonic_ns() < hung_ns + 40_000_000_000
    assert [gpu.state for gpu in trace.gpus] == ["stalled" if i == 1 else "ok" for i in range(num_gpus)]
    for gpu in trace.gpus:
        # A call that was slow only because the machine stood still did not hang.
        stalls = [
            (start_ns, end_ns)
            for start_ns, end_ns in zip(gpu.stalls.start_ns, gpu.stalls.end_ns, strict=True)
            if end_ns == trace.end_ns or apart_from(stood_still, (start_ns, end_ns)) > SHORTEST_STALL_NS
        ]
        assert stalls == ([(hung_ns, trace.end_ns)] if gpu.index == 1 else [])
        # Readings from before the hang stay.
        assert min(gpu.counter.before_ns) < hung_ns


def test_call_that_comes_back_is_a_stall_and_a_healthy_gpu(fake_nvml: Tell) -> None:
    """Three and a half seconds: of reads a second apart, two at least are missed."""
    fake_nvml(hang="nvmlDeviceGetTotalEnergyConsumption:3500:1@call=30")
    sampler = PowerRecorder(UUIDS[:2])
    sampler.start()
    wait_for(lambda: len(sampler.snapshot().gpus[1].stalls.end_ns) > 0)
    ended_ns = time.monotonic_ns() + 300_000_000
    wait_for(lambda: max(sampler.snapshot().gpus[1].polled.t_ns) > ended_ns + 1_500_000_000)
    trace = sampler.stop()
    assert [gpu.state for gpu in trace.gpus] == ["ok", "ok"]
    ((start_ns, end_ns),) = zip(trace.gpus[1].stalls.start_ns, trace.gpus[1].stalls.end_ns, strict=True)
    assert 3_500_000_000 <= end_ns - start_ns < trace.end_ns - start_ns
    assert trace.gpus[1].missed_ticks >= 2
    assert list(trace.gpus[0].stalls.start_ns) == []


def test_hang_under_the_drivers_own_lock_stalls_all(fake_nvml: Tell) -> None:
    fake_nvml(devices=4, global_lock=1, hang="nvmlDeviceGetFieldValues:45000:1@after=200")
    sampler = PowerRecorder(UUIDS[:4])
    sampler.start()
    wait_for(lambda: all(len(gpu.stalls.start_ns) for gpu in sampler.snapshot().gpus))
    assert [gpu.state for gpu in stop_aside(sampler, patience_s=20).gpus] == ["stalled"] * 4


def test_hang_from_the_first_call(fake_nvml: Tell) -> None:
    fake_nvml(devices=3, hang="nvmlDeviceGetMigMode:45000:1")
    sampler = PowerRecorder(UUIDS[:3])
    sampler.start()
    wait_for(lambda: all(len(gpu.polled.t_ns) > 3 for gpu in sampler.snapshot().gpus if gpu.index != 1))
    trace = stop_aside(sampler, patience_s=20)
    assert [gpu.state for gpu in trace.gpus] == ["ok", "stalled", "ok"]
    assert len(trace.gpus[1].counter.energy_mj) == 0


def test_first_calls_that_hang_hold_up_no_other_gpu(fake_nvml: Tell) -> None:
    """Each GPU has its poller before any poller looks for its own: two of three starts fail where that is not so."""
    fake_nvml(devices=8, hang=",".join(f"nvmlDeviceGetMigMode:45000:{gpu}" for gpu in range(1, 8)))
    for _ in range(3):
        sampler = PowerRecorder(UUIDS[:8])
        sampler.start()
        wait_for(lambda sampler=sampler: len(sampler.snapshot().gpus[0].polled.t_ns) > 3)  # type: ignore[misc]
        assert [gpu.state for gpu in stop_aside(sampler, patience_s=20).gpus] == ["ok", *["stalled"] * 7]


def test_call_that_comes_back_after_the_end_is_the_last(
    fake_nvml: Tell, fake_answered: Callable[[str, int], int]
) -> None:
    def answered() -> dict[str, int]:
        calls = (f"nvmlDeviceGet{reading}" for reading in ("MigMode", "MultiGpuBoard", *READINGS))
        return {call: fake_answered(call, 1) for call in calls}

    fake_nvml(hang="nvmlDeviceGetMigMode:6000:1")
    before = answered()
    sampler = PowerRecorder(UUIDS[:2])
    sampler.start()
    assert stop_aside(sampler, patience_s=20).gpus[1].state == "stalled"
    wait_for(lambda: answered()["nvmlDeviceGetMigMode"] > before["nvmlDeviceGetMigMode"])
    time.sleep(0.5)
    assert answered() == {**before, "nvmlDeviceGetMigMode": before["nvmlDeviceGetMigMode"] + 1}


@pytest.mark.parametrize("call", ["Init", "DeviceGetHandleByUUID"])
def test_start_is_bounded(fake_nvml: Tell, call: str) -> None:
    fake_nvml(hang=f"nvml{call}:45000")
    started_s = time.monotonic()
    with pytest.raises(MachineError, match=r"^power sampler: opening the GPUs: the driver has not answered for 200 ms"):
        PowerRecorder(UUIDS[:1], start_limit_s=0.2).start()
    assert time.monotonic() - started_s < 40


def test_hung_shutdown_does_not_hold_up_stop(fake_nvml: Tell) -> None:
    fake_nvml(hang="nvmlShutdown:45000")
    sampler = PowerRecorder(UUIDS[:2])
    sampler.start()
    assert [gpu.state for gpu in stop_aside(sampler, patience_s=20).gpus] == ["ok", "ok"]


@pytest.mark.parametrize(("reading", "call"), [*itertools.product(READINGS, [1, 2, 4]), ("MigMode", 1)])
def test_gpu_lost_at_any_call(fake_nvml: Tell, reading: str, call: int) -> None:
    fake_nvml(fail=f"nvmlDeviceGet{reading}:15:1@call={call}")
    sampler = PowerRecorder(UUIDS[:2])
    sampler.start()
    wait_for(lambda: sampler.snapshot().gpus[1].state == "lost")
    wait_for(lambda: sampler.latest_power_w() == {UUIDS[0]: 400.0, UUIDS[1]: None})
    trace = sampler.stop()
    assert [gpu.state for gpu in trace.gpus] == ["ok", "lost"]
    assert [gpu.failed_calls for gpu in trace.gpus] == [0, 1]  # a lost GPU is not asked again


@pytest.mark.parametrize(("code", "state"), [(15, "lost"), (4, "no_permission"), (999, "error")])
@pytest.mark.parametrize("call", ["HandleByUUID", "UUID"])
def test_gpu_that_can_not_be_opened(fake_nvml: Tell, call: str, code: int, state: str) -> None:
    fake_nvml(devices=3, fail=f"nvmlDeviceGet{call}:{code}:1")
    sampler = PowerRecorder(UUIDS[:3])
    sampler.start()
    wait_for(lambda: all(len(gpu.polled.t_ns) > 3 for gpu in sampler.snapshot().gpus if gpu.uuid != UUIDS[1]))
    trace = stop_aside(sampler, patience_s=20)
    assert [gpu.state for gpu in trace.gpus] == ["ok", state, "ok"]
    assert [(gpu.uuid, gpu.index) for gpu in trace.gpus] == [(UUIDS[0], 0), (UUIDS[1], None), (UUIDS[2], 2)]
    assert (trace.gpus[1].failed_calls, trace.gpus[1].capabilities) == (1, ())
    assert [len(trace.gpus[1].counter.energy_mj), len(trace.gpus[1].polled.t_ns)] == [0, 0]
    (energy,) = (gpu for gpu in attempt_energy(trace, trace.start_ns, trace.end_ns, None).gpus if gpu.uuid == UUIDS[1])
    assert energy.energy_j is None
    assert state in energy.flags


def test_lost_gpu_keeps_what_was_recorded(fake_nvml: Tell) -> None:
    fake_nvml(load="constant:400", fail="nvmlDeviceGetFieldValues:15:1@call=4")
    sampler = PowerRecorder(UUIDS[:2])
    sampler.start()
    wait_for(lambda: sampler.snapshot().gpus[1].state == "lost")
    time.sleep(0.4)
    trace = sampler.stop()
    assert 0 < len(trace.gpus[1].polled.t_ns) < len(trace.gpus[0].polled.t_ns)
    start_ns = trace.start_ns + 200_000_000
    ok, lost = attempt_energy(trace, start_ns, trace.end_ns - 200_000_000, None).gpus
    assert ok.energy_j is not None
    assert lost.energy_j is None
    assert "lost" in lost.flags


@pytest.mark.parametrize(("code", "state"), [(4, "no_permission"), (3, "not_supported"), (999, "error")])
def test_failing_calls_become_a_state(fake_nvml: Tell, code: int, state: str) -> None:
    power = ("TotalEnergyConsumption", "Samples", "FieldValues", "PowerUsage")
    fake_nvml(fail=",".join(f"nvmlDeviceGet{reading}:{code}:0" for reading in power))
    sampler = PowerRecorder(UUIDS[:2])
    sampler.start()
    time.sleep(0.4)
    start_ns = time.monotonic_ns()
    time.sleep(0.2)
    end_ns = time.monotonic_ns()
    trace = sampler.stop()
    assert [gpu.state for gpu in trace.gpus] == [state, "ok"]
    assert not {"counter", "series", "instant", "average"} & set(trace.gpus[0].capabilities)
    assert list(trace.gpus[0].polled.t_ns) == []  # never zeros
    energy = attempt_energy(trace, start_ns, end_ns, None)
    assert energy.gpus[0].energy_j is None
    assert state in energy.gpus[0].flags


def test_one_plane_without_permission_leaves_the_others(fake_nvml: Tell) -> None:
    fake_nvml(load="constant:400", fail="nvmlDeviceGetTotalEnergyConsumption:4:0")
    sampler = PowerRecorder(UUIDS[:1])
    sampler.start()
    time.sleep(0.4)
    (gpu,) = sampler.stop().gpus
    assert gpu.state == "ok"
    assert gpu.failed_calls == 1  # a refused plane is not asked again
    assert len(gpu.series.power_mw) > 0
    assert "counter" not in gpu.capabilities


def test_errors_that_pass(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlDeviceGetTotalEnergyConsumption:999:0@call=3-5")
    sampler = PowerRecorder(UUIDS[:1])
    sampler.start()
    wait_for(lambda: len(sampler.snapshot().gpus[0].counter.energy_mj) > 5)
    (gpu,) = sampler.stop().gpus
    assert (gpu.state, gpu.failed_calls) == ("ok", 3)


@pytest.mark.parametrize("which", range(0, 50, 7))
def test_a_start_survives_two_percent_of_calls_that_fail(fake_nvml: Tell, which: int) -> None:
    """One of each 50 calls, whichever; and every second ``nvmlInit``."""
    fake_nvml(devices=3, fail=f"all:999@every=50-{which},nvmlInit:999@every=2-{which}")
    sampler = PowerRecorder(UUIDS[:3])
    sampler.start()
    wait_for(lambda: all(map(_has_readings, sampler.snapshot().gpus)))
    trace = sampler.stop()
    assert [(gpu.uuid, gpu.index, gpu.state) for gpu in trace.gpus] == [(UUIDS[i], i, "ok") for i in range(3)]
    assert all(map(_has_readings, trace.gpus))


def _has_readings(gpu: GpuTrace) -> bool:
    return len(gpu.counter.energy_mj) > 1 and len(gpu.series.power_mw) > 1


def test_a_driver_that_hangs_makes_the_sampler_unavailable(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybench.power.recorder.START_LIMIT_S", 0.2)
    fake_nvml(hang="nvmlDeviceGetCount_v2:45000")
    assert sampler_unavailable_reason() == SENTENCES["a_driver_that_hangs_makes_the"]


def test_glitches_and_resets_are_recorded_as_they_came(fake_nvml: Tell) -> None:
    fake_nvml(zero_every=10, counter_reset_ms=500)
    sampler = PowerRecorder(UUIDS[:1])
    sampler.start()
    wait_for(lambda: min(sampler.snapshot().gpus[0].counter.energy_mj) < 5_000_000_000)
    (gpu,) = sampler.stop().gpus
    power_mw = np.asarray(gpu.series.power_mw)
    assert set(np.diff(np.flatnonzero(power_mw == 0))) == {10}
    assert set(power_mw) == {0, 400_000}
    assert gpu.state == "ok"
