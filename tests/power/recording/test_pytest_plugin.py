"""The fixture ``benchmark_energy``, in a pytest of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pybench._nvml", reason="the extension is not built")

PROGRAM = """
def test_sum(benchmark_energy):
    assert benchmark_energy(sum, range(1000)) == 499500
"""


def _run(folder: Path, library: str) -> tuple[str, dict[str, float | None]]:
    """Summary of pytest, and the test's ``extra_info``."""
    (folder / "test_sum.py").write_text(PROGRAM)
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},  # those of xdist
        "PYBENCH_NVML_LIBRARY": library,
        "FAKE_NVML_LOAD": "constant:400",
        "FAKE_NVML_DEVICES": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # a checkout that was not installed anew has no entry point
    }
    plugins = ("-p", "pytest_benchmark.plugin", "-p", "pybench.power.pytest_plugin", "-p", "no:cacheprovider")
    limits = ("--benchmark-json=out.json", "--benchmark-max-time=0.01", "--benchmark-min-rounds=2")
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *limits]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (benchmark,) = json.loads((folder / "out.json").read_text())["benchmarks"]
    return done.stdout, benchmark["extra_info"]


def test_joules_of_a_call_have_a_bound(fake_library: Path, tmp_path: Path) -> None:
    """400 W on one GPU; the saved file can be compared."""
    shown, extra = _run(tmp_path, str(fake_library))
    assert "test_sum.py::test_sum: " in shown
    low, joules, high = (extra[name] for name in ("energy_low_j", "energy_j", "energy_high_j"))
    assert low is not None
    assert joules is not None
    assert high is not None
    assert 0 < low <= joules <= high
    assert extra["mean_power_w"] == pytest.approx(400, rel=0.1)
    compare = [sys.executable, "-m", "pytest_benchmark", "compare", "out.json"]
    compared = subprocess.run(compare, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "test_sum" in compared.stdout


def test_without_a_gpu_the_timing_stands(tmp_path: Path) -> None:
    shown, extra = _run(tmp_path, "/no/such/libnvidia-ml.so.1")
    assert extra["energy_j"] is None
    assert "test_sum.py::test_sum: unknown: no power to measure: no NVIDIA driver" in shown
