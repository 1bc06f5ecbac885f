"""Records a fake GPU for five seconds; prints the driver's and the recorded samples, and of windows the joules.

Started with the library of ``tests/native/wall_clock.cpp``.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from dataclasses import replace

from pybench.power.estimate import attempt_energy
from pybench.power.recorder import PowerRecorder
from pybench.power.samples import series_times_ns
from pybench.power.trace import OffsetColumns, PowerTrace, SeriesColumns

UUID = "GPU-00000000-fake-4000-8000-000000000000"
LENGTH_S = 5.0
WINDOWS_S = ((0.3, 1.5), (1.5, 2.8), (2.9, 4.5), (0.3, 4.5))


def sample_times_ns(trace: PowerTrace) -> list[int]:
    """The recorded samples on CLOCK_MONOTONIC."""
    return list(map(int, series_times_ns(trace.gpus[0].series, trace.offsets)))


def main() -> None:
    """Windows before, across and after the time at which the clock is set, and of all."""
    truth_j = ctypes.CDLL(os.environ["PYBENCH_NVML_LIBRARY"]).fake_nvml_energy_j
    truth_j.restype, truth_j.argtypes = ctypes.c_double, (ctypes.c_int, ctypes.c_int64)
    wall_clock = ctypes.CDLL(None)
    recorder = PowerRecorder([UUID])
    recorder.start()
    wall_clock.wall_clock_begin()
    began_ns = time.monotonic_ns()
    time.sleep(LENGTH_S)
    while sample_times_ns(recorder.snapshot())[-1] < began_ns + WINDOWS_S[-1][1] * 1e9:
        pass  # on a busy machine the poller reads late
    trace = recorder.stop()
    kept_ns = (ctypes.c_int64 * 10_000)()
    num_kept = wall_clock.wall_clock_kept_ns(kept_ns, ctypes.c_size_t(len(kept_ns)))
    recorded_ns = sample_times_ns(trace)
    # With the driver's own times, as where no clock is set.
    series = SeriesColumns(realtime_ns=kept_ns[: len(recorded_ns)], power_mw=trace.gpus[0].series.power_mw)
    unset = replace(trace, gpus=(replace(trace.gpus[0], series=series),), offsets=OffsetColumns())
    windows = []
    for ends_s in WINDOWS_S:
        start_ns, end_ns = (began_ns + round(end_s * 1e9) for end_s in ends_s)
        (gpu,) = attempt_energy(trace, start_ns, end_ns, None).gpus
        (other,) = attempt_energy(unset, start_ns, end_ns, None).gpus
        used_j = truth_j(0, end_ns) - truth_j(0, start_ns)
        windows.append(
            (used_j, (gpu.energy_low_j, gpu.energy_high_j), (other.energy_low_j, other.energy_high_j), gpu.flags)
        )
    found = {"kept_ns": kept_ns[:num_kept], "recorded_ns": recorded_ns, "windows": windows}
    print(json.dumps({**found, "set_by_ns": int(trace.offsets.set_by_ns[-1])}))


if __name__ == "__main__":
    main()
