"""Windows of many threads on several GPUs behind one driver lock: the truth lies inside the bound, or a flag is up."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

import pybench
from pybench.model.record import Energy

pytest.importorskip("pybench._nvml", reason="the extension is not built")

Truth = Callable[[int | None, int], float]
NUM_THREADS = 8
LENGTH_S = 6.0
# Sums that reach over the same marks.
SUMS_AT_ONCE = 6


def windows_of_threads(power: pybench.PowerSampler) -> list[str]:
    """Each thread opens windows of 0.1 to 1 s one after the other; the names of all."""
    names: list[str] = []

    def work(number: int) -> None:
        choice = random.Random(number)
        end_s, count = time.monotonic() + LENGTH_S, 0
        while time.monotonic() < end_s:
            with power.window(f"{number}.{count}"):
                time.sleep(choice.uniform(0.1, 1.0))
            names.append(f"{number}.{count}")
            count += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return names


def held(energies: list[Energy], truth_j: Truth) -> tuple[int, int]:
    """How many windows of GPUs hold the truth or have a flag, and how many there are."""
    inside, number = 0, 0
    for energy in energies:
        for gpu in energy.gpus:
            true_j = truth_j(gpu.index, energy.end_ns) - truth_j(gpu.index, energy.start_ns)
            known = gpu.energy_low_j is not None and gpu.energy_high_j is not None
            inside += bool(gpu.flags) or not known or gpu.energy_low_j <= true_j <= gpu.energy_high_j  # type: ignore[operator]
            number += 1
    return inside, number


@pytest.mark.parametrize("num_gpus", [1, 4, 8])
@pytest.mark.timeout(180)
def test_windows_of_eight_threads(fake_nvml: Callable[..., None], fake_truth_j: Truth, num_gpus: int) -> None:
    fake_nvml(devices=num_gpus, load="bursty:100:700:1", sensor="h200", latency="h200", global_lock=1)
    with pybench.PowerSampler() as power:
        time.sleep(1.0)
        names = windows_of_threads(power)
    inside, number = held([power.energy(name) for name in names], fake_truth_j)
    assert number >= 8 * num_gpus
    # 99 %, and by chance those that all threads have open at one moment.
    assert number - inside <= 0.01 * number + NUM_THREADS


@pytest.mark.timeout(180)
def test_marks_every_5_ms(fake_nvml: Callable[..., None], fake_truth_j: Truth) -> None:
    """Sums between marks that are far apart; so many searches never let the counter's readings end."""
    fake_nvml(devices=4, load="square:120:680:150", sensor="h200", latency="h200", global_lock=1)
    with pybench.PowerSampler() as power:
        time.sleep(1.0)
        for number in range(800):
            power.mark(str(number))
            time.sleep(0.005)
    sums = [power.energy(power.between(str(first), str(first + 10 * SUMS_AT_ONCE))) for first in range(0, 730, 10)]
    inside, number = held(sums, fake_truth_j)
    # 99 %, and by chance those that share 50 ms.
    assert number - inside <= 0.01 * number + SUMS_AT_ONCE
