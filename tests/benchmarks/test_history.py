"""Opening a history: 1,000 runs of 84 rows, in a process of its own, as a user's command is."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pybench.model.figures import PointFigures, RunFigures
from pybench.model.suite import AxisValue
from pybench.store.history_index import INDEX_FILE, Entry, encode_index, source_of
from tests.runs_against_runs import KEYS

NUM_RUNS, NUM_POINTS = 1000, 21
METRICS = {"output_tokens_per_s": 1000.0, "ttft_s": 0.05, "tpot_s": 0.01, "energy_j_per_output_token": 0.16}


def many_runs(folder: Path, num_runs: int = NUM_RUNS) -> None:
    """Runs with 0.5 % between nights, as an index has them; a reading that trusts no index finds damaged files."""
    random_ = random.Random(1)
    entries = []
    for number in range(num_runs):
        name = f"{number:04}.json"
        (folder / name).write_text(json.dumps(number))
        points = tuple(_point(random_, degree) for degree in range(1, NUM_POINTS + 1))
        when = f"{2024 + number // 336}-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}T03:00:00+00:00"
        run = RunFigures(
            run_id=name, created_utc=when, suite="s", verdict="no_expectation", keys=dict(KEYS), points=points
        )
        entries.append(Entry(name=name, sources=(source_of(folder, name),), run=run))
    (folder / INDEX_FILE).write_bytes(encode_index(entries))


def _point(random_: random.Random, degree: int) -> PointFigures:
    medians = {
        name: tuple(value * degree * (1 + random_.gauss(0, 0.005)) for _ in range(3)) for name, value in METRICS.items()
    }
    name = f"decode[backend=torch,tensor_parallel={degree}]"
    axes: dict[str, AxisValue] = {"backend": "torch", "tensor_parallel": degree}
    return PointFigures(id=name, benchmark="decode", axes=axes, num_gpus=degree, digest="d", medians=medians)


def test_a_thousand_runs(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Goal: the history under 1 s and 500 MB, the interpreter's start and the libraries included."""
    many_runs(tmp_path)
    command: list[str | Path] = [Path(sys.executable).with_name("pybench"), "history", str(tmp_path)]

    def open_it() -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert f"{NUM_RUNS} runs" in done.stdout
        assert "skipped" not in done.stdout

    benchmark.pedantic(open_it, rounds=5, warmup_rounds=1)
    peak_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    benchmark.extra_info["peak_mib"] = round(peak_mib)
    with capsys.disabled():
        print(
            f"\n  history of {NUM_RUNS} runs: {benchmark.stats.stats.min:.2f} s (goal 1), {peak_mib:.0f} MiB (goal 500)"
        )
