"""A run to drill with: two points of a fake worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FAKE_WORKER = Path(__file__).parents[1] / "runner" / "fake_worker.py"
SUITE = """
schema = 1
name = "drill"
description = "two points of a fake worker"

[[benchmark]]
name = "decode"
workload = "generate"
backend = "torch"
model = "llama-tiny"
dtype = "float32"
batch_size = 1
prompt_tokens = 1
output_tokens = 2
attempts = 2
max_attempts = 2
steps = 3
time_limit_s = 60

[benchmark.axes]
tensor_parallel = [1, 2]

[[benchmark.expect]]
metric = "output_tokens_per_s"
scaling = "strong"
along = "tensor_parallel"
table = "drill"
"""
TABLE = """
schema = 1
name = "drill"
description = "what the fake worker reaches"

[[row]]
machine = "any"
fabric = "any"
backend = "any"
workload = "generate"
model_class = "any"
metric = "output_tokens_per_s"
count = 2
baseline_count = 1
value = {value}
tolerance = 0.1
kind = "measured"
source = "tests/runner/fake_worker.py"
"""

Drill = Callable[..., tuple[str, ...]]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, on a machine without GPUs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1")
    return tmp_path


@pytest.fixture
def drill(here: Path) -> Drill:
    """Write the drill's suite, its table and a Python that is the fake worker; returns the run's arguments."""

    def write(behaviour: str = "ok", value: float = 2.0) -> tuple[str, ...]:
        (here / "drill.toml").write_text(SUITE)
        (here / "expected").mkdir(exist_ok=True)
        (here / "expected" / "drill.toml").write_text(TABLE.format(value=value))
        python = here / "python"
        path = os.pathsep.join(sys.path)
        # The launcher says: python -I -B worker/__main__.py EXCHANGE [--ranks N].
        python.write_text(
            f'#!/bin/sh\nexport PYTHONPATH="{path}" FAKE_BEHAVIOUR={behaviour}\nshift 3\n'
            f'exec "{sys.executable}" "{FAKE_WORKER}" "$@"\n'
        )
        python.chmod(0o755)
        return ("run", "drill.toml", "--python", str(python))

    return write
