"""Compare our joules with those of Zeus, CodeCarbon and a 100 Hz loop on one fake GPU in one process.

The peers come with ``pip install 'pybench-gpu[bench]'``. They find the library by the loader's path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.programs import shell_program

NUM_WINDOWS = 30
LOADS = ("constant:400", "decode:300:600:30", "square:120:680:200", "bursty:120:680:1")
TIMES_BETTER = 10
PEERS = Path(__file__).with_name("peers.py")

if find_spec("zeus") is None or find_spec("codecarbon") is None:
    pytest.skip("peers are not installed: pip install 'pybench-gpu[bench]'", allow_module_level=True)


@pytest.mark.parametrize("longest_s", [1.0, 0.3])
@pytest.mark.timeout(1800)
def test_p95_error_beside_peers(
    benchmark: BenchmarkFixture, fake_library: Path, tmp_path: Path, longest_s: float
) -> None:
    by_load = benchmark.pedantic(measure_all, (fake_library, tmp_path, longest_s))
    for load, errors in by_load.items():
        benchmark.extra_info |= {f"{load} {tool}": p95_percent(values) for tool, values in errors.items()}
    over_all = {
        tool: p95_percent([e for errors in by_load.values() for e in errors[tool]]) for tool in by_load[LOADS[0]]
    }
    benchmark.extra_info |= dict(over_all)
    for errors in (over_all, *({tool: p95_percent(e) for tool, e in tools.items()} for tools in by_load.values())):
        ours = errors.pop("pybench")
        assert min(errors.values()) >= TIMES_BETTER * ours


def p95_percent(errors: Sequence[float]) -> float:
    """95th percentile of the absolute errors."""
    return float(np.quantile(np.abs(errors), 0.95)) * 100


def measure_all(library: Path, folder: Path, longest_s: float) -> dict[str, dict[str, list[float]]]:
    """Relative errors of every tool under every load."""
    return {load: measure(library, folder, load, longest_s) for load in LOADS}


def measure(library: Path, folder: Path, load: str, window_s: float) -> dict[str, list[float]]:
    """Relative errors of every tool."""
    # CodeCarbon looks for NVIDIA GPUs by this program; it asks NVML for their energy.
    shell_program(folder / "nvidia-smi", "")
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LD_LIBRARY_PATH": str(library.parent),
        "PYBENCH_NVML_LIBRARY": str(library),
        "FAKE_NVML_DEVICES": "1",
        "FAKE_NVML_SENSOR": "h200",
        "FAKE_NVML_LATENCY": "h200",
        "FAKE_NVML_LOAD": load,
    }
    command = [sys.executable, str(PEERS), str(library), str(window_s), str(NUM_WINDOWS)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found
