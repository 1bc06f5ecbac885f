"""Windows of equal work on a real GPU, measured by pybench, Zeus and a 100 Hz loop in turn.

``python -m tests.benchmarks.peers_on_gpu [NUM_WINDOWS]``. Products of matrices warm the board for 12 s. Windows of
162 ms then follow each other within the load, and windows of 182 ms after pauses, from idle: each of one tool, with
work that ends at its synchronisation. Prints one JSON line a kind of window: scatter of the mean power, and energy
over P·t, where P is what the energy counter gives for 3 s of the same load before and after, taken to change evenly.
From idle, the board's own ramp is in the window: there P·t is no truth, and the tools are compared with each other.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import pynvml
import torch
from zeus.monitor import ZeusMonitor

import pybench
from tests.benchmarks.peers import Begin, End, PowerLoop

WARM_S, STEADY_S = 12.0, 3.0
LENGTHS_S = {"within work": 0.162, "from idle": 0.182}
Row = tuple[float, float, float]
"""Middle on CLOCK_MONOTONIC in s, length in s, joules."""


class Products:
    """The load: products of matrices, and how many of them fill a second."""

    def __init__(self) -> None:
        self._left = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self._out = torch.empty_like(self._left)
        self.keep_busy(WARM_S)
        begun_s = time.monotonic()
        self.work(1000)
        self.per_s = 1000 / (time.monotonic() - begun_s)

    def work(self, count: int) -> None:
        """Multiply so often, and wait for the end."""
        for _ in range(count):
            torch.matmul(self._left, self._left, out=self._out)
        torch.cuda.synchronize()

    def keep_busy(self, length_s: float) -> None:
        """Load the board for about this long."""
        end_s = time.monotonic() + length_s
        while time.monotonic() < end_s:
            self.work(50)


def steady(load: Products, handle: object) -> tuple[float, float]:
    """Middle in s and power in W of a steady load, by the energy counter between two of its steps."""
    load.keep_busy(0.5)
    (begun_s, begun_mj), (end_s, end_mj) = next_step(load, handle, 0.0), next_step(load, handle, STEADY_S)
    return (begun_s + end_s) / 2, (end_mj - begun_mj) / 1e3 / (end_s - begun_s)


def next_step(load: Products, handle: object, after_s: float) -> tuple[float, int]:
    """Time and value of the counter's first step after a while of load."""
    load.keep_busy(after_s)
    before = value = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    while value == before:
        load.work(2)
        value = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    return time.monotonic(), value


def summary(rows: list[Row], before: tuple[float, float], after: tuple[float, float]) -> dict[str, float]:
    """Scatter and ratio of the windows of one tool."""
    watts = [energy_j / length_s for _, length_s, energy_j in rows]
    steady_w = [
        before[1] + (middle_s - before[0]) / (after[0] - before[0]) * (after[1] - before[1]) for middle_s, _, _ in rows
    ]
    ratios = [power_w / expected_w for power_w, expected_w in zip(watts, steady_w, strict=True)]
    return {
        "windows": len(rows),
        "length_s": statistics.median(length_s for _, length_s, _ in rows),
        "mean_w": statistics.fmean(watts),
        "scatter": statistics.stdev(watts) / statistics.fmean(watts),
        "over_P_t": statistics.fmean(ratios),
        "over_P_t_lowest": min(ratios),
        "over_P_t_highest": max(ratios),
    }


def main() -> None:
    """Measure and print."""
    num_windows = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    monitor, loop = ZeusMonitor(gpu_indices=[0], cpu_indices=[]), PowerLoop()

    def zeus_end(name: str) -> float:
        return float(monitor.end_window(name, sync_execution=False).gpu_energy[0])

    tools: dict[str, tuple[Begin, End]] = {
        "zeus": (lambda name: monitor.begin_window(name, sync_execution=False), zeus_end),
        "loop_100hz": (loop.begin, loop.end),
    }
    load = Products()
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "zeus": version("zeus"), "pybench": pybench.__version__}))
    with pybench.PowerSampler() as power:
        for kind, length_s in LENGTHS_S.items():
            wait: Callable[[float], object] = load.keep_busy if kind == "within work" else time.sleep
            rows: dict[str, list[Row]] = {name: [] for name in ("pybench", *tools)}
            half_widths, count = [], round(load.per_s * length_s)
            before = steady(load, handle)
            for number in range(num_windows):
                for name, (begin, end) in tools.items():
                    wait(random.uniform(0.08, 0.22))
                    begin(f"{kind} {number}")
                    begun_s = time.monotonic()
                    load.work(count)
                    end_s = time.monotonic()
                    rows[name].append(((begun_s + end_s) / 2, end_s - begun_s, end(f"{kind} {number}")))
                wait(random.uniform(0.08, 0.22))
                with power.window(f"{kind} {number}"):
                    load.work(count)
            after = steady(load, handle)
            for number in range(num_windows):
                energy = power.energy(f"{kind} {number}")
                gpu = energy.gpus[0]
                if gpu.energy_j is None or gpu.energy_low_j is None or gpu.energy_high_j is None:
                    raise SystemExit(f"peers_on_gpu: the energy of a window is unknown: {', '.join(gpu.flags)}")
                middle_s = (energy.start_ns + energy.end_ns) / 2e9
                rows["pybench"].append((middle_s, energy.duration_s, gpu.energy_j))
                half_widths.append((gpu.energy_high_j - gpu.energy_low_j) / 2 / gpu.energy_j)
            results = {name: summary(found, before, after) for name, found in rows.items()}
            results["pybench"]["half_width_median"] = statistics.median(half_widths)
            print(json.dumps({"kind": kind, "steady_w": [before[1], after[1]], "tools": results}), flush=True)


if __name__ == "__main__":
    main()
