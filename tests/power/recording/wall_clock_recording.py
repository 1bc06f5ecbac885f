"""Records a fake GPU for five seconds; prints the longest time without a sample, and of windows what was found.

Started with the library of ``tests/native/wall_clock.cpp``.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from itertools import pairwise

from pybench.power.estimate import attempt_energy
from pybench.power.recorder import PowerRecorder

UUID = "GPU-00000000-fake-4000-8000-000000000000"
LENGTH_S = 5.0
WINDOWS_S = ((0.3, 1.5), (1.5, 2.8), (2.9, 4.5), (0.3, 4.5))


def main() -> None:
    """Windows before, across and after the time at which the clock is set, and of all."""
    truth_j = ctypes.CDLL(os.environ["PYBENCH_NVML_LIBRARY"]).fake_nvml_energy_j
    truth_j.restype, truth_j.argtypes = ctypes.c_double, (ctypes.c_int, ctypes.c_int64)
    recorder = PowerRecorder([UUID])
    recorder.start()
    ctypes.CDLL(None).wall_clock_begin()
    began_ns = time.monotonic_ns()
    time.sleep(LENGTH_S)
    trace = recorder.stop()
    windows = []
    for ends_s in WINDOWS_S:
        start_ns, end_ns = (began_ns + round(end_s * 1e9) for end_s in ends_s)
        (gpu,) = attempt_energy(trace, start_ns, end_ns, None).gpus
        used_j = truth_j(0, end_ns) - truth_j(0, start_ns)
        windows.append((used_j, gpu.energy_low_j, gpu.energy_high_j, gpu.flags))
    offset_ns = int(trace.offsets.realtime_offset_ns[-1])
    times_ns = [int(stamp_ns) - offset_ns for stamp_ns in trace.gpus[0].series.realtime_ns]
    apart_s = max(after - before for before, after in pairwise([*times_ns, trace.end_ns])) / 1e9
    print(json.dumps({"apart_s": apart_s, "set_by_ns": int(trace.offsets.set_by_ns[-1]), "windows": windows}))


if __name__ == "__main__":
    main()
