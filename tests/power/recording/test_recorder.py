"""The sampler against the fake driver, whose joules are known in closed form."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pybench.model.errors import MachineError, UsageError
from pybench.model.record import GpuEnergy
from pybench.power import recorder as recorder_module
from pybench.power.estimate import attempt_energy
from pybench.power.recorder import POLLED_PERIOD_S, PowerRecorder, sampler_unavailable_reason
from pybench.power.trace import GpuTrace, PowerTrace
from tests.bounds import near
from tests.golden_sentences import sentences_of
from tests.processes import wait_for

SENTENCES = sentences_of("power.recording.recorder")

pytest.importorskip("pybench._nvml", reason="the extension is not built")

Tell = Callable[..., None]
Truth = Callable[[int | None, int], float]
UUIDS = tuple(f"GPU-{i:08}-fake-4000-8000-{i:012}" for i in range(16))
EVERYTHING = (
    *("counter", "series", "instant", "average", "memory"),
    *("temperature", "sm_clock", "memory_clock", "utilization", "clock_event_reasons"),
)
COUNTED_BEFORE_J = 5e6


def record(
    uuids: tuple[str, ...] = UUIDS[:2], *, length_s: float = 1.2, polled_period_s: float = POLLED_PERIOD_S
) -> tuple[PowerTrace, int, int]:
    """A trace, and a window well inside it."""
    sampler = PowerRecorder(uuids, polled_period_s=polled_period_s)
    sampler.start()
    time.sleep(0.35)
    start_ns = time.monotonic_ns()
    time.sleep(length_s)
    end_ns = time.monotonic_ns()
    time.sleep(0.15)
    return sampler.stop(), start_ns, end_ns


def within_bound(gpu: GpuEnergy, truth_j: float) -> bool:
    """The bound is wider where a busy machine reads the counter late."""
    return (
        gpu.energy_low_j is not None
        and gpu.energy_high_j is not None
        and near(truth_j, gpu.energy_low_j, gpu.energy_high_j)
    )


def column(values: Any) -> Any:
    return np.asarray(values).astype(np.int64)


def newest_grid_ns(times_ns: Any, epoch_ns: int, gpu: GpuTrace) -> Any:
    """The counter's publication that was newest then: every 100 ms, boards 37 ms apart."""
    period_ns, phase_ns = 100_000_000, UUIDS.index(gpu.uuid) * 37_000_000 + epoch_ns
    return (column(times_ns) - phase_ns) // period_ns * period_ns + phase_ns


@pytest.mark.parametrize("load", ["constant:400", "square:100:600:200", "bursty:100:700:1"])
def test_counter_rows_are_the_drivers(fake_nvml: Tell, fake_truth_j: Truth, fake_epoch_ns: int, load: str) -> None:
    fake_nvml(load=load)
    trace, _, _ = record()
    assert [gpu.uuid for gpu in trace.gpus] == list(UUIDS[:2])
    for gpu in trace.gpus:
        energy_j = column(gpu.counter.energy_mj) / 1e3 - COUNTED_BEFORE_J
        ways = []
        for times_ns in (gpu.counter.before_ns, gpu.counter.after_ns):
            published_ns = newest_grid_ns(times_ns, fake_epoch_ns, gpu)
            truth_j = [fake_truth_j(gpu.index, int(t_ns)) for t_ns in published_ns]
            ways.append(np.abs(energy_j - truth_j))
        assert np.all(np.minimum(*ways) < 0.002)


def test_a_publication_lies_on_both_sides_of_the_whole(fake_nvml: Tell) -> None:
    """The counter is read until it steps, at the start and at the end, and the series reaches further."""
    fake_nvml()
    sampler = PowerRecorder(UUIDS[:1])
    sampler.start()
    time.sleep(0.3)
    asked_ns = time.monotonic_ns()
    trace = sampler.stop()
    (gpu,) = trace.gpus
    values, before_ns = column(gpu.counter.energy_mj), column(gpu.counter.before_ns)
    changed = np.flatnonzero(np.diff(values)) + 1
    assert before_ns[changed[-1] - 1] >= asked_ns  # the old value was still read after stop was asked for
    last_sample_ns = column(gpu.series.realtime_ns)[-1] - trace.offsets.realtime_offset_ns[-1]
    assert last_sample_ns > before_ns[changed[-1]]


@pytest.mark.parametrize("load", ["constant:400", "square:100:600:200", "bursty:100:700:3"])
def test_energy_of_a_window(fake_nvml: Tell, fake_truth_j: Truth, load: str) -> None:
    fake_nvml(load=load, sensor="h200")
    trace, start_ns, end_ns = record()
    for gpu in attempt_energy(trace, start_ns, end_ns, None).gpus:
        truth_j = fake_truth_j(gpu.index, end_ns) - fake_truth_j(gpu.index, start_ns)
        assert within_bound(gpu, truth_j)


def test_columns(fake_nvml: Tell) -> None:
    fake_nvml(load="constant:400")
    before_ns = time.monotonic_ns()
    trace, _, _ = record(UUIDS[:1], length_s=0.2)
    assert before_ns <= trace.start_ns < trace.end_ns <= time.monotonic_ns()
    assert trace.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (gpu,) = trace.gpus
    assert (gpu.uuid, gpu.index, gpu.name, gpu.state, gpu.failed_calls) == (UUIDS[0], 0, "NVIDIA H200", "ok", 0)
    assert (gpu.capabilities, gpu.scope, gpu.mig, gpu.shared_board) == (EVERYTHING, "gpu_board", False, False)
    assert np.all(column(gpu.counter.before_ns) <= column(gpu.counter.after_ns))
    assert np.all(np.diff(column(gpu.counter.energy_mj)) >= 0)
    # One stamp for each sample, 20 ms apart, none drained twice.
    assert np.all(np.abs(np.diff(column(gpu.series.realtime_ns)) - 20_000_000) < 2_000_000)
    assert set(gpu.polled.instant_mw) == {400_000}
    assert set(gpu.polled.memory_mw) == {92_000}
    assert set(gpu.slow.temperature_c) == {55}
    assert set(gpu.slow.sm_clock_mhz) == {1980}
    assert set(gpu.slow.memory_clock_mhz) == {3201}
    assert set(gpu.slow.gpu_utilization_percent) == {97}
    assert set(gpu.slow.clock_event_reasons) == {0}


def test_slow_state_is_read_where_a_window_may_end(fake_nvml: Tell) -> None:
    """At each snapshot, which asks for an anchor, and at stop; not each second only."""
    fake_nvml()
    sampler = PowerRecorder(UUIDS[:1])
    sampler.start()
    num_read = [len(sampler.snapshot().gpus[0].slow.t_ns) for _ in range(5)]
    end_ns = time.monotonic_ns()
    (gpu,) = sampler.stop().gpus
    assert np.all(np.diff(num_read) >= 1)
    assert gpu.slow.t_ns[-1] >= end_ns
    assert np.all(np.diff(column(gpu.slow.t_ns)) > 0)


def test_columns_are_views_that_outlive_the_sampler(fake_nvml: Tell) -> None:
    fake_nvml()
    sampler = PowerRecorder(UUIDS[:1])
    sampler.start()
    trace = sampler.stop()
    energy_mj: Any = trace.gpus[0].counter.energy_mj
    assert (energy_mj.dtype, energy_mj.flags.writeable, energy_mj.flags.owndata) == (np.uint64, False, False)
    kept = list(energy_mj)
    del trace, sampler
    assert list(energy_mj) == kept


def test_old_driver_has_only_counter_and_average(
    fake_nvml: Tell, old_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml(load="constant:250")
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", str(old_library))
    for _ in range(2):  # the first session tells the second which readings are missing
        trace, start_ns, end_ns = record(UUIDS[:1], length_s=0.6)
        (gpu,) = trace.gpus
        assert (gpu.state, gpu.failed_calls) == ("ok", 0)
        absent = {"series", "instant", "memory"}
        assert gpu.capabilities == tuple(name for name in EVERYTHING if name not in absent)
        assert list(gpu.series.realtime_ns) == []
        assert set(gpu.polled.instant_mw) == {-1}
        assert set(gpu.polled.average_mw) == {250_000}
        assert set(gpu.slow.clock_event_reasons) == {0}
    (energy,) = attempt_energy(trace, start_ns, end_ns, None).gpus
    assert energy.method == "counter"


@pytest.mark.parametrize(("field", "lacking"), [("186/0", "instant"), ("185/2", "memory")])
def test_fields_fail_one_by_one(fake_nvml: Tell, field: str, lacking: str) -> None:
    fake_nvml(field_fail=f"{field}:3:0")
    trace, _, _ = record(length_s=0.1)
    without = tuple(name for name in EVERYTHING if name != lacking)
    assert [gpu.capabilities for gpu in trace.gpus] == [without, EVERYTHING]
    assert [gpu.state for gpu in trace.gpus] == ["ok", "ok"]


def test_missing_average_field_is_read_by_the_older_call(fake_nvml: Tell) -> None:
    fake_nvml(field_fail="185/0:2")
    trace, _, _ = record(length_s=0.1)
    assert [gpu.capabilities for gpu in trace.gpus] == [EVERYTHING, EVERYTHING]
    assert set(trace.gpus[0].polled.average_mw) == {400_000}


def test_what_a_gpu_lacks_is_asked_once(fake_nvml: Tell, fake_answered: Callable[[str, int], int]) -> None:
    fake_nvml(fail="nvmlDeviceGetSamples:3:0", driver="probed once")
    record(UUIDS[:1], length_s=0.1)
    made = fake_answered("nvmlDeviceGetMigMode", 0)
    trace, _, _ = record(UUIDS[:1], length_s=0.1)
    assert fake_answered("nvmlDeviceGetMigMode", 0) == made + 1  # may change, so is asked again
    assert "series" not in trace.gpus[0].capabilities
    assert trace.gpus[0].failed_calls == 0


def test_identity(fake_nvml: Tell) -> None:
    fake_nvml(mig=1, shared_board=1, module=1)
    (gpu,) = record(UUIDS[:1], length_s=0.1)[0].gpus
    assert (gpu.mig, gpu.shared_board, gpu.scope) == (True, True, "module")


def test_identity_that_is_not_told(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlDeviceGetMigMode:3,nvmlDeviceGetMultiGpuBoard:3")
    (gpu,) = record(UUIDS[:1], length_s=0.1)[0].gpus
    assert (gpu.mig, gpu.shared_board, gpu.failed_calls) == (None, None, 0)


def test_calls_that_run_side_by_side_get_a_poller_each(fake_nvml: Tell) -> None:
    fake_nvml(devices=4, latency="nvmlDeviceGetTotalEnergyConsumption:20000")
    # On a busy machine parallel calls may take as long as serial ones.
    assert 4 in (record(UUIDS[:4], length_s=1.0)[0].num_pollers for _ in range(10))


@pytest.mark.parametrize(
    "told", [{"latency": "nvmlDeviceGetTotalEnergyConsumption:12000", "global_lock": 1}, {}], ids=["serial", "short"]
)
def test_one_poller_where_several_gain_nothing(fake_nvml: Tell, told: dict[str, object]) -> None:
    fake_nvml(devices=4, **told)
    # A busy machine may hide that calls wait for each other: then each GPU keeps its poller, and another try tells.
    tries = (record(UUIDS[:4], length_s=1.5)[0] for _ in range(10))
    trace = next((trace for trace in tries if trace.num_pollers == 1), None)
    assert trace is not None
    assert all(len(gpu.counter.energy_mj) > 5 for gpu in trace.gpus)


def test_missed_ticks_are_counted_not_made_up_for(fake_nvml: Tell) -> None:
    fake_nvml(latency="nvmlDeviceGetTotalEnergyConsumption:250000:0@after=100")
    trace, _, _ = record(UUIDS[:1], length_s=1.2, polled_period_s=0.1)
    (gpu,) = trace.gpus
    assert gpu.missed_ticks >= 4  # each reading of the counter takes the time of two polls
    assert np.all(np.diff(column(gpu.polled.t_ns)) > 0)


def test_offsets_are_measured_at_every_drain(fake_nvml: Tell) -> None:
    fake_nvml()
    trace, _, _ = record(UUIDS[:1], length_s=1.2)
    assert len(trace.offsets.t_ns) >= 4  # start, first drain, one a second, last drain, end
    assert np.all(np.diff(column(trace.offsets.t_ns)) >= 0)
    now = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.monotonic_ns()
    assert np.all(np.abs(column(trace.offsets.realtime_offset_ns) - now) < 1e9)


def test_snapshot_covers_what_has_ended(fake_nvml: Tell, fake_truth_j: Truth) -> None:
    fake_nvml(load="square:100:600:200", sensor="h200")
    sampler = PowerRecorder(UUIDS[:2])
    sampler.start()
    time.sleep(0.3)
    start_ns = time.monotonic_ns()
    time.sleep(0.4)
    end_ns = time.monotonic_ns()
    first = sampler.snapshot()
    for gpu in attempt_energy(first, start_ns, end_ns, None).gpus:
        truth_j = fake_truth_j(gpu.index, end_ns) - fake_truth_j(gpu.index, start_ns)
        assert within_bound(gpu, truth_j)
    whole = sampler.stop()
    for earlier, later in zip(first.gpus, whole.gpus, strict=True):
        kept = list(earlier.counter.energy_mj)
        assert kept == list(later.counter.energy_mj)[: len(kept)]
        assert len(later.counter.energy_mj) > len(kept)


def steps_since(gpu: GpuTrace, since_ns: int) -> list[tuple[int, int]]:
    """When steps of the counter were seen whose old value was still read after a moment: before and after."""
    after = np.flatnonzero(column(gpu.counter.before_ns) >= since_ns)
    changed = after[1:][np.diff(column(gpu.counter.energy_mj)[after]) != 0]
    return [(gpu.counter.before_ns[place - 1], gpu.counter.after_ns[place]) for place in changed]


def test_anchor_has_the_next_step_read(fake_nvml: Tell) -> None:
    fake_nvml()
    sampler = PowerRecorder(UUIDS[:2])
    sampler.start()
    asked_ns = time.monotonic_ns()
    sampler.anchor()
    # Where the machine holds a reading up, the step after it is read.
    wait_for(lambda: all(steps_since(gpu, asked_ns) for gpu in sampler.snapshot(search=False).gpus))
    stopped_ns = time.monotonic_ns()
    for gpu in sampler.stop().gpus:
        low_ns, high_ns = steps_since(gpu, asked_ns)[0]
        assert asked_ns <= low_ns < high_ns < stopped_ns


def test_the_counter_is_read_seldom(fake_nvml: Tell) -> None:
    """A reading costs milliseconds: at the start as many as two steps and what refines them take, then hardly any."""
    fake_nvml(devices=1)

    def is_seldom() -> bool:
        sampler = PowerRecorder(UUIDS[:1])
        sampler.start()
        time.sleep(6.0)
        (gpu,) = sampler.stop().gpus
        reads_s = (column(gpu.counter.before_ns) - gpu.counter.before_ns[0]) / 1e9
        return len(reads_s) < 200 and float(np.max(np.diff(reads_s))) > 1.0

    # A busy machine may make steps look late, which are then searched for again.
    assert any(is_seldom() for _ in range(5))


def test_counter_period(fake_nvml: Tell) -> None:
    """A late reading is skipped: none is read more often than its period."""
    fake_nvml()
    began_s = time.monotonic()

    def num_read(sampler: PowerRecorder) -> int:
        return len(sampler.snapshot(search=False).gpus[0].counter.energy_mj)

    def most() -> float:
        """With a period of half a second, the first reading included."""
        return 2 + (time.monotonic() - began_s) / 0.5

    with PowerRecorder(UUIDS[:1], counter_period_s=0.5) as sampler:
        wait_for(lambda: num_read(sampler) > 2)
        assert num_read(sampler) <= most()
    began_s = time.monotonic()
    with PowerRecorder(UUIDS[:1], counter_period_s=0.01) as sampler:
        wait_for(lambda: num_read(sampler) > most())


@pytest.mark.parametrize("period_s", [0.0, -1.0, 0.0009, float("nan")])
def test_periods_that_are_none(period_s: float) -> None:
    with pytest.raises(ValueError, match=r"^counter_period_s: .* is under 0\.001, the shortest$"):
        PowerRecorder(UUIDS, counter_period_s=period_s)
    with pytest.raises(ValueError, match=r"^polled_period_s: .* is under 0\.1, the shortest$"):
        PowerRecorder(UUIDS, polled_period_s=period_s)


def seconds_between_polls(number: int, **periods_s: float) -> Any:
    """Polls of one GPU's fields; anchors make no polls."""
    with PowerRecorder(UUIDS[:1], **periods_s) as sampler:  # type: ignore[arg-type]
        since_ns = time.monotonic_ns() + 200_000_000
        while len(found := sampler.snapshot(since_ns, search=False).gpus[0].polled.t_ns) < number:
            time.sleep(0.05)
    return np.diff(column(found)) / 1e9


def test_fields_are_read_seldom_beside_a_series(fake_nvml: Tell) -> None:
    """Its samples every 20 ms show the power as the fields do."""
    fake_nvml(devices=1)
    assert np.median(seconds_between_polls(4)) > 0.5


@pytest.mark.parametrize(
    "fail",
    ["nvmlDeviceGetSamples:3", "nvmlDeviceGetSamples:6", "nvmlDeviceGetSamples:999@after=100"],
    ids=["no series", "an empty one", "one that ends"],
)
def test_fields_are_read_often_without_a_series(fake_nvml: Tell, fail: str) -> None:
    fake_nvml(devices=1, fail=fail)
    assert np.median(seconds_between_polls(12)[-5:]) < 0.5


def test_fields_are_read_as_often_as_requested(fake_nvml: Tell) -> None:
    fake_nvml(devices=1)
    assert np.median(seconds_between_polls(6, polled_period_s=0.1)) < 0.5


def test_no_gpus(fake_nvml: Tell) -> None:
    fake_nvml()
    assert record((), length_s=0.0)[0].gpus == ()


def test_context_manager_and_restart(fake_nvml: Tell) -> None:
    fake_nvml(load="constant:400")
    sampler = PowerRecorder(UUIDS[:1])
    assert sampler.latest_power_w() == {UUIDS[0]: None}
    for _ in range(2):
        with sampler:
            while sampler.latest_power_w() != {UUIDS[0]: 400.0}:
                time.sleep(0.01)
    with sampler:
        sampler.stop()


@pytest.mark.parametrize("method", ["stop", "snapshot"])
def test_not_started(method: str) -> None:
    with pytest.raises(MachineError, match=rf"^power sampler: {method} without being started$"):
        getattr(PowerRecorder(UUIDS), method)()


def test_unknown_uuid(fake_nvml: Tell) -> None:
    fake_nvml()
    with pytest.raises(
        MachineError, match=r"^power sampler: nvmlDeviceGetHandleByUUID on GPU-x: Not Found \(code 6\)$"
    ):
        PowerRecorder(("GPU-x",)).start()


def test_available(fake_nvml: Tell) -> None:
    fake_nvml()
    assert sampler_unavailable_reason() is None


def test_one_lost_gpu_leaves_the_others_to_sample(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlDeviceGetUUID:15:0")
    assert sampler_unavailable_reason() is None


def test_unavailable_when_no_gpu_answers(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlDeviceGetUUID:15")
    assert sampler_unavailable_reason() == SENTENCES["unavailable_when_no_gpu_answers"]


def test_unavailable_without_gpu(fake_nvml: Tell) -> None:
    fake_nvml(devices=0)
    assert sampler_unavailable_reason() == SENTENCES["unavailable_without_gpu"]


def test_unavailable_when_the_driver_is_not_loaded(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlInit:9")
    assert sampler_unavailable_reason() == SENTENCES["unavailable_when_the_driver_is_not"]


def test_unavailable_without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")
    expected = "no NVIDIA driver: /nowhere/libnvidia-ml.so.1 not found"
    assert sampler_unavailable_reason() == expected
    with pytest.raises(MachineError, match=r"libnvidia-ml\.so\.1 not found"):
        PowerRecorder(UUIDS).start()


def test_unavailable_without_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the remedy, before anything is recorded."""
    monkeypatch.setattr(recorder_module, "_nvml", None)
    monkeypatch.setattr(recorder_module, "_FAULT", "extension pybench._nvml not built: no such module")
    line = "extension pybench._nvml not built: no such module; reinstall with a C++17 compiler at hand: pip install ."
    assert sampler_unavailable_reason() == line
    with pytest.raises(MachineError, match=f"^power sampler: {re.escape(line)}$"):
        PowerRecorder(UUIDS).start()


def test_a_recording_out_of_room_keeps_the_newest(fake_nvml: Tell) -> None:
    """A sample takes 16 bytes, and the polled fields 32 in the time of five: of 2.4 s and 2 s after, half find room."""
    fake_nvml(devices=1)
    with PowerRecorder(UUIDS[:1], polled_period_s=0.1, most_bytes=3000) as sampler:
        time.sleep(2.5)
        (gpu,) = sampler.stop().gpus
    newest_ns = max(gpu.polled.t_ns)
    assert 16 * len(gpu.series.power_mw) + 32 * len(gpu.polled.t_ns) + 48 * len(gpu.slow.t_ns) < 6000
    assert min(gpu.polled.t_ns) > newest_ns - 2_500_000_000
    assert gpu.dropped_records == 0


def test_a_second_start_is_refused(fake_nvml: Tell) -> None:
    """The first session goes on, and keeps its windows."""
    fake_nvml()
    sampler = PowerRecorder(UUIDS[:1])
    sampler.start()
    with pytest.raises(UsageError, match="it records already"):
        sampler.start()
    assert sampler.is_running
    sampler.stop()
    sampler.start()
    sampler.stop()
