"""How long a stop takes, and how long the other GPUs wait, when one GPU's driver call hangs."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pybench.power.recorder import PowerRecorder
from pybench.power.trace import PowerTrace

pytest.importorskip("pybench._nvml", reason="the extension is not built")

Tell = Callable[..., None]
UUIDS = tuple(f"GPU-{i:08}-fake-4000-8000-{i:012}" for i in range(16))
CASES = [(8, 5000), (8, 45000), (16, 45000)]


def started(num_gpus: int) -> PowerRecorder:
    sampler = PowerRecorder(UUIDS[:num_gpus])
    sampler.start()
    time.sleep(0.5)
    return sampler


@pytest.mark.parametrize("latency", ["none", "h200"])
@pytest.mark.parametrize("num_gpus", [1, 8, 16])
def test_stop(benchmark: BenchmarkFixture, fake_nvml: Tell, num_gpus: int, latency: str) -> None:
    fake_nvml(devices=num_gpus, **({} if latency == "none" else {"latency": latency}))
    trace = benchmark.pedantic(PowerRecorder.stop, setup=lambda: ((started(num_gpus),), {}), rounds=5)
    assert [gpu.state for gpu in trace.gpus] == ["ok"] * num_gpus


@pytest.mark.parametrize(("num_gpus", "hang_ms"), CASES)
def test_stop_beside_a_hung_call(benchmark: BenchmarkFixture, fake_nvml: Tell, num_gpus: int, hang_ms: int) -> None:
    fake_nvml(devices=num_gpus, latency="h200", hang=f"nvmlDeviceGetTotalEnergyConsumption:{hang_ms}:1@after=400")
    trace = benchmark.pedantic(PowerRecorder.stop, setup=lambda: ((started(num_gpus),), {}), rounds=5)
    assert sorted(gpu.state for gpu in trace.gpus) == ["ok"] * (num_gpus - 1) + ["stalled"]


@pytest.mark.parametrize(("num_gpus", "hang_ms"), CASES)
def test_others_beside_a_hung_call(benchmark: BenchmarkFixture, fake_nvml: Tell, num_gpus: int, hang_ms: int) -> None:
    """The longest time in which another GPU's power was not read."""
    fake_nvml(devices=num_gpus, hang=f"nvmlDeviceGetTotalEnergyConsumption:{hang_ms}:1@after=1000")

    def sample() -> PowerTrace:
        sampler = started(num_gpus)
        time.sleep(3.0)
        return sampler.stop()

    trace = benchmark.pedantic(sample, rounds=3)
    gaps_ns = [np.max(np.diff(np.asarray(gpu.polled.t_ns))) for gpu in trace.gpus if gpu.index != 1]
    benchmark.extra_info["longest_gap_ms"] = round(max(gaps_ns) / 1e6)
    benchmark.extra_info["pollers"] = trace.num_pollers
    assert trace.gpus[1].state == "stalled"
