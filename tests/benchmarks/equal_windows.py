"""Repeated windows of equal work on a real GPU: scatter, bias against steady power times time, and bounds.

``python -m tests.benchmarks.equal_windows [NUM_WINDOWS] [TRACE_FILE] [LOAD ...]``. The load warms the board for 20 s.
Windows of 0.2 s follow each other at random distances within the load, which never stops: a board that pauses cools by
several degrees, and draws about 0.2 % less for each. Its steady power P is measured over 5 s before and after them;
between, P is taken to change evenly. As many windows then follow pauses, from idle. Loads: ``copies`` (default) and
``products`` of matrices.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pybench
from pybench.power.trace_file import write_trace

WARM_S = 20.0
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
        for name in sys.argv[3:] or ["copies"]:
            found = _measure(power, name, loads[name], num_windows, torch.cuda.synchronize)
            print(json.dumps(found), flush=True)
        trace = power.stop()
    if len(sys.argv) > 2:
        write_trace(trace, Path(sys.argv[2]))


def _measure(
    power: pybench.PowerSampler, name: str, call: Callable[[], object], num_windows: int, sync: Callable[[], object]
) -> dict[str, object]:
    num_calls = _calls_within(WINDOW_S, call, sync)
    _keep_busy(WARM_S, call, sync)
    before = _steady(power, f"{name} before", call, sync)
    within = []
    for number in range(num_windows):
        _keep_busy(random.uniform(0.05, 0.45), call, sync)
        within.append(_window(power, f"{name} {number}", num_calls, call, sync))
    after = _steady(power, f"{name} after", call, sync)
    idle = []
    for number in range(num_windows):
        time.sleep(random.uniform(0.05, 0.45))
        idle.append(_window(power, f"{name} from idle {number}", num_calls, call, sync))
    rows = [_row(power, window, True) for window in within] + [_row(power, window, False) for window in idle]
    found: dict[str, object] = {"load": name, "steady_w": [before[1], after[1]], "rows": rows}
    for within_work, kind in ((True, "within work"), (False, "from idle")):
        chosen = [
            (start_ns, end_ns, energy_j, low_j, high_j)
            for kept, start_ns, end_ns, energy_j, low_j, high_j in rows
            if kept == within_work and energy_j is not None and low_j is not None and high_j is not None
        ]
        found[kind] = _summary(chosen, before, after)
    return found


def _steady(
    power: pybench.PowerSampler, name: str, call: Callable[[], object], sync: Callable[[], object]
) -> tuple[int, float]:
    """The middle of a long window under load, CLOCK_MONOTONIC ns, and its mean power in W."""
    _keep_busy(0.5, call, sync)
    with power.window(name, sync=sync):
        _keep_busy(STEADY_S, call, sync)
    _keep_busy(0.2, call, sync)
    energy = power.energy(name)
    power_w = energy.gpus[0].mean_power_w
    if power_w is None:
        raise SystemExit(f"equal_windows: the energy of {name} is unknown: {', '.join(energy.gpus[0].flags)}")
    return (energy.start_ns + energy.end_ns) // 2, power_w


def _window(
    power: pybench.PowerSampler, name: str, num_calls: int, call: Callable[[], object], sync: Callable[[], object]
) -> str:
    with power.window(name, sync=sync):
        _work(num_calls, call, sync)
    return name


def _row(
    power: pybench.PowerSampler, window: str, within_work: bool
) -> tuple[bool, int, int, float | None, float | None, float | None]:
    energy = power.energy(window)
    gpu = energy.gpus[0]
    return within_work, energy.start_ns, energy.end_ns, gpu.energy_j, gpu.energy_low_j, gpu.energy_high_j


def _summary(
    rows: Sequence[tuple[int, int, float, float, float]], before: tuple[int, float], after: tuple[int, float]
) -> dict[str, object]:
    lengths_s = [(end_ns - start_ns) / 1e9 for start_ns, end_ns, *_ in rows]
    joules = [row[2] for row in rows]
    over, watts = [], []
    for (start_ns, _, energy_j, *_), length_s in zip(rows, lengths_s, strict=True):
        part = (start_ns - before[0]) / (after[0] - before[0])
        power_w = before[1] + part * (after[1] - before[1])
        over.append(energy_j / (power_w * length_s))
        watts.append(energy_j / length_s)
    return {
        "windows": len(rows),
        "length_s": statistics.median(lengths_s),
        "mean_j": statistics.fmean(joules),
        "scatter": statistics.stdev(watts) / statistics.fmean(watts),
        "over_P_t": statistics.fmean(over),
        "over_P_t_stdev": statistics.stdev(over),
        "half_width_median": statistics.median((high - low) / 2 / energy for _, _, energy, low, high in rows),
    }


def _keep_busy(length_s: float, call: Callable[[], object], sync: Callable[[], object]) -> None:
    end_s = time.monotonic() + length_s
    while time.monotonic() < end_s:
        _work(20, call, sync)


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
