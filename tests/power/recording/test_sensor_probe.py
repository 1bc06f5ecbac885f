"""The probe of power sensors on drivers that hang or lack calls."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from pybench.machine.nvml import returned_within
from pybench.power import sensor_probe

pytest.importorskip("pybench._nvml", reason="the extension is not built")

UUID = "GPU-00000000-fake-4000-8000-000000000000"
Tell = Callable[..., None]


@pytest.mark.usefixtures("fresh_nvml")
def test_a_call_that_hangs_is_given_up(fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampler does not call it; the other calls are measured all the same."""
    fake_nvml(devices=1, hang="nvmlDeviceGetPowerUsage:45000")
    monkeypatch.setattr(sensor_probe, "PROBE_S", 0.3)
    # The healthy calls have this limit, too, on a machine that may stand still for a while.
    monkeypatch.setattr(sensor_probe, "CALL_LIMIT_S", 4.0)
    (found,) = sensor_probe.probe_sensors([UUID])
    costs = {cost.call: cost for cost in found.calls}
    assert costs["nvmlDeviceGetPowerUsage"].error == sensor_probe.NO_ANSWER
    assert costs["nvmlDeviceGetTotalEnergyConsumption"].median_s is not None
    assert costs["nvmlDeviceGetFieldValues"].median_s is not None


@pytest.mark.usefixtures("fresh_nvml")
def test_calls_that_a_driver_lacks_are_errors_of_their_own(
    old_library: object, fake_nvml: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml(devices=1)
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", str(old_library))
    monkeypatch.setattr(sensor_probe, "PROBE_S", 0.3)
    (found,) = sensor_probe.probe_sensors([UUID])
    costs = {cost.call: cost for cost in found.calls}
    assert costs["nvmlDeviceGetSamples"].error == "Function Not Found"
    assert costs["nvmlDeviceGetPowerUsage"].median_s is not None


def test_what_a_call_raises_in_time_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        returned_within(5.0, lambda: int("x"))
    assert returned_within(5.0, lambda: 7) == [7]
    released = threading.Event()
    assert returned_within(0.05, released.wait) == []
    released.set()
