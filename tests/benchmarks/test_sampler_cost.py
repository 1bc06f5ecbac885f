"""What sampling costs: CPU time of eight GPUs, and of an import where there is no driver.

The fake's own work is in the CPU time. Its calls keep a core busy for as long as an H200's do.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pybench.power.recorder import PowerRecorder
from pybench.power.sampler import PowerSampler

pytest.importorskip("pybench._nvml", reason="the extension is not built")

UUIDS = tuple(f"GPU-{i:08}-fake-4000-8000-{i:012}" for i in range(8))
# As long as it takes until steps of the counters are foretold for half a minute.
SETTLE_S = 20.0
SPAN_S = 60.0
Tell = Callable[..., None]
IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


@pytest.mark.parametrize("num_gpus", [1, 8])
@pytest.mark.parametrize("latency", ["none", "h200"])
@pytest.mark.timeout(600)
def test_cpu_fraction(benchmark: BenchmarkFixture, fake_nvml: Tell, latency: str, num_gpus: int) -> None:
    """Fraction of one core, past the start and before the stop."""
    tell(fake_nvml, num_gpus, latency)

    def sample() -> float:
        with PowerRecorder(UUIDS[:num_gpus]):
            time.sleep(SETTLE_S)
            before_s = time.process_time()
            time.sleep(SPAN_S)
            return (time.process_time() - before_s) / SPAN_S

    cpu_fraction = benchmark.pedantic(sample, rounds=1)
    benchmark.extra_info["cpu_percent_of_a_core"] = round(100 * cpu_fraction, 3)
    assert cpu_fraction > 0


@pytest.mark.parametrize("length_s", [10.0, 60.0])
@pytest.mark.timeout(600)
def test_cpu_of_a_window(benchmark: BenchmarkFixture, fake_nvml: Tell, length_s: float) -> None:
    """Eight GPUs, both ends included; and what one start costs."""
    tell(fake_nvml, 8, "h200")

    def sample() -> tuple[float, float]:
        begun_s = time.process_time()
        with PowerSampler(UUIDS) as power:
            time.sleep(SETTLE_S)
            start_s = time.process_time()
            with power.window("work"):
                time.sleep(length_s)
            time.sleep(0.3)  # the end's readings
            return time.process_time() - start_s, start_s - begun_s

    window_s, settling_s = benchmark.pedantic(sample, rounds=1)
    benchmark.extra_info["cpu_percent_of_a_core"] = round(100 * window_s / length_s, 3)
    benchmark.extra_info["cpu_s_of_start"] = round(settling_s, 2)
    assert window_s > 0


def tell(fake_nvml: Tell, num_gpus: int, latency: str) -> None:
    fake_nvml(devices=num_gpus, **({} if latency == "none" else {"latency": latency, "busy": 1}))


@pytest.mark.parametrize("module", ["pybench._nvml", "pybench.power.recorder"])
def test_import_without_nvml(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")

    def import_afresh() -> float:
        command = [sys.executable, "-c", IMPORT.format(module)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return float(done.stdout)

    imports_s = []
    benchmark.pedantic(lambda: imports_s.append(import_afresh()), rounds=10)
    benchmark.extra_info["import_ms_p50"] = round(1e3 * sorted(imports_s)[len(imports_s) // 2], 1)
