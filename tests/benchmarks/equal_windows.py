"""Repeated windows of equal work on a real GPU: scatter, bias against steady power times time, and bounds.

``python -m tests.benchmarks.equal_windows [NUM_WINDOWS] [TRACE_FILE]``. A steady load of copies gives P over 5 s; then
windows of 0.2 s of it and of matrix products, after pauses of random length.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pybench
from pybench.machine.trace_file import write_trace

STEADY_S = 5.0
WINDOW_S = 0.2


def main() -> None:
    """Print one JSON line a load."""
    import torch  # noqa: PLC0415 - a GPU is needed

    num_windows = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    numbers = torch.randn(2**28, device="cuda")
    target = torch.empty_like(numbers)
    left = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(left)
    loads: dict[str, Callable[[], object]] = {
        "copies": lambda: target.copy_(numbers),
        "products": lambda: torch.matmul(left, left, out=out),
    }
    with pybench.PowerSampler() as power:
        for name, call in loads.items():
            print(json.dumps(_measure(power, name, call, num_windows, torch.cuda.synchronize)), flush=True)
        trace = power.stop()
    if len(sys.argv) > 2:
        write_trace(trace, Path(sys.argv[2]))


def _measure(
    power: pybench.PowerSampler, name: str, call: Callable[[], object], num_windows: int, sync: Callable[[], object]
) -> dict[str, object]:
    num_calls = _calls_within(WINDOW_S, call, sync)
    with power.window(f"{name} steady", sync=sync):
        end_s = time.monotonic() + STEADY_S
        while time.monotonic() < end_s:
            for _ in range(20):
                call()
            sync()
    (steady,) = power.energy(f"{name} steady").gpus[:1]
    rows = []
    for number in range(num_windows):
        # Busy before and after, so that no ramp of the board lies in the window; every other one from idle.
        lead = number % 2 == 0
        time.sleep(random.uniform(0.05, 0.45))
        if lead:
            _work(num_calls // 2, call, sync)
        window = f"{name} {number}"
        with power.window(window, sync=sync):
            _work(num_calls, call, sync)
        if lead:
            _work(num_calls // 2, call, sync)
        time.sleep(0.1)
        energy = power.energy(window)
        (gpu,) = energy.gpus[:1]
        length_s = (energy.end_ns - energy.start_ns) / 1e9
        rows.append((lead, length_s, gpu.energy_j, gpu.energy_low_j, gpu.energy_high_j, gpu.flags))
    found: dict[str, object] = {"load": name, "steady_w": steady.mean_power_w, "steady_flags": steady.flags}
    for lead, kind in ((True, "within work"), (False, "from idle")):
        chosen = [row for row in rows if row[0] == lead and row[2] is not None]
        joules = [row[2] for row in chosen]
        over = [row[2] / (steady.mean_power_w * row[1]) for row in chosen]
        halves = [(row[4] - row[3]) / 2 / row[2] for row in chosen]
        found[kind] = {
            "windows": len(chosen),
            "length_s": statistics.median(row[1] for row in chosen),
            "mean_j": statistics.fmean(joules),
            "scatter": statistics.stdev(joules) / statistics.fmean(joules),
            "over_P_t": statistics.fmean(over),
            "over_P_t_stdev": statistics.stdev(over),
            "half_width_median": statistics.median(halves),
            "flags": sorted({flag for row in chosen for flag in row[5]}),
        }
    return found


def _work(num_calls: int, call: Callable[[], object], sync: Callable[[], object]) -> None:
    for _ in range(num_calls):
        call()
    sync()


def _calls_within(length_s: float, call: Callable[[], object], sync: Callable[[], object]) -> int:
    _work(50, call, sync)
    begun_s = time.monotonic()
    _work(200, call, sync)
    return max(1, int(200 * length_s / (time.monotonic() - begun_s)))


if __name__ == "__main__":
    main()
