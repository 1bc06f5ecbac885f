"""Measures windows with pybench, Zeus, CodeCarbon and a 100 Hz loop in turn, on one fake GPU, and prints the errors.

    python peers.py FAKE_LIBRARY LONGEST_WINDOW_S NUM_WINDOWS

The loader path must lead to the same library, which Zeus and CodeCarbon open by its name. Each window is one tool's
own: from its begin call's return to just before its end call. Prints a JSON object of tool to relative errors.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml
from zeus.monitor import ZeusMonitor

import pybench

J_PER_KWH = 3.6e6
LOOP_PERIOD_S = 0.01
Begin = Callable[[str], object]
End = Callable[[str], float]


class PowerLoop:
    """Read the power 100 times a second and add it up, as many programs do."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def begin(self, _name: str) -> None:
        self._done = threading.Event()
        self._joules, self._thread = 0.0, threading.Thread(target=self._run)
        self._thread.start()

    def end(self, _name: str) -> float:
        self._done.set()
        self._thread.join()
        return self._joules

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._done.wait(LOOP_PERIOD_S):
            now_s = time.monotonic()
            self._joules += pynvml.nvmlDeviceGetPowerUsage(self._handle) / 1e3 * (now_s - last_s)
            last_s = now_s


def peers() -> dict[str, tuple[Begin, End]]:
    """Begin and end of a window by each peer; the end gives joules."""
    from codecarbon import OfflineEmissionsTracker  # noqa: PLC0415 - peers_on_gpu does without it

    zeus = ZeusMonitor(gpu_indices=[0], cpu_indices=[])
    carbon = OfflineEmissionsTracker(country_iso_code="USA", save_to_file=False, log_level="critical", gpu_ids=[0])
    loop = PowerLoop()

    def zeus_end(name: str) -> float:
        return float(zeus.end_window(name, sync_execution=False).gpu_energy[0])

    def carbon_end(name: str) -> float:
        return float(carbon.stop_task(name).gpu_energy) * J_PER_KWH

    return {
        "zeus": (lambda name: zeus.begin_window(name, sync_execution=False), zeus_end),
        "codecarbon": (carbon.start_task, carbon_end),
        "loop_100hz": (loop.begin, loop.end),
    }


def main() -> None:
    """Run and print."""
    library, window_s, num_windows = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    fake: Any = ctypes.CDLL(library)
    fake.fake_nvml_energy_j.restype = ctypes.c_double
    fake.fake_nvml_energy_j.argtypes = (ctypes.c_int, ctypes.c_int64)
    phases = random.Random(7)

    def length_s() -> float:
        """Up to the longest: a whole multiple of the counter's 100 ms would flatter whoever reads it at both ends."""
        return window_s * phases.uniform(0.75, 1.0)

    errors: dict[str, list[float]] = {}
    with pybench.PowerSampler() as power:
        for name, (begin, end) in peers().items():
            for number in range(num_windows):
                time.sleep(phases.random() * 0.25)
                begin(f"{name}{number}")
                start_ns = time.monotonic_ns()
                time.sleep(length_s())
                end_ns = time.monotonic_ns()
                truth_j = fake.fake_nvml_energy_j(0, end_ns) - fake.fake_nvml_energy_j(0, start_ns)
                errors.setdefault(name, []).append(end(f"{name}{number}") / truth_j - 1)
        for number in range(num_windows):
            time.sleep(phases.random() * 0.25)
            with power.window(f"pybench{number}"):
                time.sleep(length_s())
    for number in range(num_windows):
        energy = power.energy(f"pybench{number}")
        truth_j = fake.fake_nvml_energy_j(0, energy.end_ns) - fake.fake_nvml_energy_j(0, energy.start_ns)
        assert energy.energy_j is not None
        errors.setdefault("pybench", []).append(energy.energy_j / truth_j - 1)
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
