"""The Python API on the fake driver, whose joules are known."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest

import pybench
from pybench import Energy, MachineError, UsageError, Window
from tests.bounds import near

pytest.importorskip("pybench._nvml", reason="the extension is not built")

Tell = Callable[..., None]


def test_windows_and_marks(fake_nvml: Tell, fake_truth_j: Callable[[int | None, int], float]) -> None:
    fake_nvml(load="square:120:680:150", sensor="h200")
    synced: list[int] = []
    with pybench.PowerSampler() as power:
        time.sleep(0.4)
        power.mark("begin")
        with power.window("work", sync=lambda: synced.append(time.monotonic_ns())):
            time.sleep(0.3)
        power.mark("end")
        while_running = power.energy("work")
        power.energy(power.between("begin", "end"))
    after = power.energy("work")
    assert len(synced) == 2
    assert synced[0] <= after.start_ns <= synced[1] <= after.end_ns
    for energy in (while_running, after):
        for gpu in energy.gpus:
            truth_j = fake_truth_j(gpu.index, energy.end_ns) - fake_truth_j(gpu.index, energy.start_ns)
            assert gpu.energy_low_j is not None
            assert gpu.energy_high_j is not None
            assert near(truth_j, gpu.energy_low_j, gpu.energy_high_j), (truth_j, gpu)


def test_a_window_is_kept_when_its_block_fails(fake_nvml: Tell) -> None:
    fake_nvml()
    with pybench.PowerSampler() as power:
        with pytest.raises(ValueError, match="non-negative"), power.window("work"):
            time.sleep(-1)
        assert power.energy("work").energy_j is not None


def test_mistakes_say_what_there_is(fake_nvml: Tell) -> None:
    fake_nvml()
    with pybench.PowerSampler() as power:
        power.mark("a")
        with pytest.raises(UsageError, match=r'^no mark "b"; marks are: a$'):
            power.between("a", "b")
        with pytest.raises(UsageError, match=r'^no window "work"; windows are: none$'):
            power.energy("work")
        with pytest.raises(UsageError, match=r'^window "empty" ends before it starts$'):
            power.energy(Window("empty", 5, 5, power))
        with power.window("open") as window, pytest.raises(UsageError, match=r'^window "open" has not ended$'):
            window.energy()


def test_each_window_of_a_loop_keeps_its_joules(fake_nvml: Tell) -> None:
    """A name used again hides no earlier window, and a later recording no earlier joules."""
    fake_nvml(devices=1)
    power = pybench.PowerSampler()
    windows: list[Window] = []
    for _ in range(2):
        with power, power.window("epoch") as window:
            time.sleep(0.2)
        windows.append(window)
    with pytest.raises(UsageError, match=r'^2 windows are named "epoch"; take one of windows\("epoch"\)$'):
        power.energy("epoch")
    assert power.windows("epoch") == tuple(windows)
    joules = [window.energy() for window in windows]
    assert all(energy.energy_j is not None for energy in joules)
    assert joules[0] is windows[0].energy()


def test_joules_add_up_over_gpus(fake_nvml: Tell) -> None:
    """Bounds and mean power too; the text has them, as JSON does."""
    fake_nvml(devices=2)
    with pybench.PowerSampler() as power, power.window("work") as window:
        time.sleep(0.3)
    energy = window.energy()
    for name in ("energy_j", "energy_low_j", "energy_high_j", "mean_power_w"):
        assert getattr(energy, name) == sum(getattr(gpu, name) for gpu in energy.gpus)
        assert energy.as_dict()[name] == getattr(energy, name)
    assert re.fullmatch(rf"[\d,.]+ J ±[\d.]+ % in {energy.duration_s:.2f} s, [\d,.]+ W.*", str(energy))
    assert json.loads(json.dumps(energy.as_dict()))["gpus"][1]["index"] == 1


def test_a_program_goes_on_without_gpus_where_power_is_not_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/no/such/libnvidia-ml.so.1")
    power = pybench.PowerSampler(required=False)
    power.start()
    with power.window("work") as window:
        power.mark("middle")
    power.stop()
    assert power.unavailable_reason is not None
    assert "no NVIDIA driver" in power.unavailable_reason
    assert window.energy() == Energy(start_ns=window.start_ns, end_ns=window.end_ns or 0, gpus=())
    assert str(window.energy()) == "unknown energy in 0.00 s"


def test_a_second_session_has_its_own_joules(fake_nvml: Tell) -> None:
    """While it runs: not out of the first one's trace, where its windows are unknown."""
    fake_nvml(devices=1)
    power = pybench.PowerSampler()
    with power, power.window("first"):
        time.sleep(0.2)
    first = power.energy("first")
    with power:
        time.sleep(0.4)
        with power.window("second"):
            time.sleep(0.2)
        second = power.energy("second")
    assert first.energy_j is not None
    assert second.energy_j is not None
    assert power.energy("second").energy_j is not None


def test_a_lost_gpu_is_left_out_with_a_warning(fake_nvml: Tell) -> None:
    fake_nvml(fail="nvmlDeviceGetUUID:15:0")
    with pytest.warns(RuntimeWarning, match=r"^power sampler: GPU 0 can't be queried: GPU is lost; left out$"):
        power = pybench.PowerSampler()
    with power, power.window("work"):
        time.sleep(0.2)
    assert [gpu.index for gpu in power.energy("work").gpus] == [1]


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the command line has it."""
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/no/such/libnvidia-ml.so.1")
    reason = "no NVIDIA driver: /no/such/libnvidia-ml.so.1 not found"
    with pytest.raises(MachineError, match=f"^no power to measure: {reason}; see pybench doctor$"):
        pybench.PowerSampler()


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sampler'"):
        _ = getattr(pybench, "Sampler")  # noqa: B009 - a type checker would refuse the name


def test_a_snapshot_holds_what_was_read_since_a_time(fake_nvml: Callable[..., None]) -> None:
    """Of the counter everything, since it shows resets."""
    fake_nvml(devices=1, sensor="h200")

    with pybench.PowerSampler() as power:
        time.sleep(0.6)
        since_ns = time.monotonic_ns()
        time.sleep(0.5)
        power.mark("end")
        whole, late = power.snapshot(), power.snapshot(since_ns, search=False)
    counted = list(whole.gpus[0].counter.energy_mj)
    assert list(late.gpus[0].counter.energy_mj)[: len(counted)] == counted  # it may be read between the two
    assert 0 < len(late.gpus[0].polled.t_ns) < len(whole.gpus[0].polled.t_ns)
    assert min(late.gpus[0].polled.t_ns) >= since_ns
    assert 0 < len(late.gpus[0].series.power_mw) < len(whole.gpus[0].series.power_mw)


def test_a_snapshot_ends_where_it_is_to(fake_nvml: Callable[..., None]) -> None:
    fake_nvml(devices=1, sensor="h200")
    with pybench.PowerSampler() as power:
        time.sleep(0.5)
        until_ns = time.monotonic_ns()
        time.sleep(0.5)
        (gpu,) = power.snapshot(until_ns=until_ns).gpus
    assert 0 < max(gpu.polled.t_ns) < until_ns
    assert 0 < max(gpu.counter.before_ns) < until_ns
    assert len(gpu.series.power_mw) > 0
