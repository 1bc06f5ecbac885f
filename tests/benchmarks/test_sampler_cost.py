"""What sampling costs: CPU time of eight GPUs, and of an import where there is no driver.

The fake's own work is in the CPU time; a real driver's calls are kernel time that only a real board can show.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pybench.machine.sampler import PowerSampler

pytest.importorskip("pybench._nvml", reason="the extension is not built")

UUIDS = tuple(f"GPU-{i:08}-fake-4000-8000-{i:012}" for i in range(8))
SPAN_S = 10.0
IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


@pytest.mark.parametrize("num_gpus", [1, 8])
@pytest.mark.parametrize("latency", ["none", "h200"])
def test_cpu_fraction(benchmark: BenchmarkFixture, fake_nvml: Callable[..., None], latency: str, num_gpus: int) -> None:
    """Fraction of one core, past the start and before the stop."""
    fake_nvml(devices=num_gpus, **({} if latency == "none" else {"latency": latency}))

    def sample() -> float:
        with PowerSampler(UUIDS[:num_gpus]):
            time.sleep(1.0)
            before_s = time.process_time()
            time.sleep(SPAN_S)
            return (time.process_time() - before_s) / SPAN_S

    cpu_fraction = benchmark.pedantic(sample, rounds=1)
    benchmark.extra_info["cpu_percent_of_a_core"] = round(100 * cpu_fraction, 3)
    assert cpu_fraction > 0


@pytest.mark.parametrize("module", ["pybench._nvml", "pybench.machine.sampler"])
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
