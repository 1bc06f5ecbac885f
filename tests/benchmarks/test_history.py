"""Opening a history: 1,000 runs of 84 rows, in a process of its own, as a user's command is."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from pybench.model.figures import PointFigures
from pybench.model.results import Estimate, PointResult
from pybench.model.suite import AxisValue
from tests.builders import POINT_RESULT, PROVENANCE, RESULTS
from tests.runs_against_runs import KEYS

NUM_RUNS, NUM_POINTS = 1000, 21
METRICS = {"output_tokens_per_s": 1000.0, "ttft_s": 0.05, "tpot_s": 0.01, "energy_j_per_output_token": 0.16}


def many_runs(folder: Path, num_runs: int = NUM_RUNS) -> None:
    """Files of runs with 0.5 % between nights."""
    random_ = random.Random(1)
    for number in range(num_runs):
        when = f"{2024 + number // 336}-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}T03:00:00+00:00"
        _write(folder / f"{number:04}.json", f"{number:04}", when, random_)


def _point(random_: random.Random, degree: int) -> PointFigures:
    medians = {
        name: tuple(value * degree * (1 + random_.gauss(0, 0.005)) for _ in range(3)) for name, value in METRICS.items()
    }
    name = f"decode[backend=torch,tensor_parallel={degree}]"
    axes: dict[str, AxisValue] = {"backend": "torch", "tensor_parallel": degree}
    return PointFigures(id=name, benchmark="decode", axes=axes, num_gpus=degree, digest="d", medians=medians)


def _write(file: Path, run_id: str, created_utc: str, random_: random.Random) -> None:
    points = tuple(_results_of(_point(random_, degree)) for degree in range(1, NUM_POINTS + 1))
    run = replace(
        RESULTS,
        run_id=run_id,
        suite="s",
        points=points,
        verdict="no_expectation",
        provenance=replace(PROVENANCE, created_utc=created_utc),
        machine_fields={"gpus": KEYS["gpu"], "driver": KEYS["driver"]},
        software_fields={"torch": KEYS["torch"], "images": KEYS["image"]},
    )
    file.write_text(json.dumps(asdict(run)))


def _results_of(point: PointFigures) -> PointResult:
    metrics = {
        name: Estimate(value=values[0], low=None, high=None, unit="", medians=values)
        for name, values in point.medians.items()
    }
    return replace(POINT_RESULT, id=point.id, axes=point.axes, digest=point.digest, metrics=metrics)


@pytest.mark.parametrize(("command", "goal_s"), [("history", 4), ("gate", 5)])
def test_a_thousand_runs(
    benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, goal_s: int
) -> None:
    """Goal: the history under 4 s, the gate under 5 s, 500 MB; the start and the libraries included."""
    folder = tmp_path / "history"
    folder.mkdir()
    many_runs(folder)
    _write(tmp_path / "tonight.json", "tonight", "2030-01-01T03:00:00+00:00", random.Random(2))
    own = {
        "history": ["history", str(folder)],
        "gate": [
            "gate",
            str(tmp_path / "tonight.json"),
            "--history",
            str(folder),
            "--across",
            "software",
            "--across",
            "profile",
        ],
    }[command]

    def open_it() -> None:
        argv = [str(Path(sys.executable).with_name("pybench")), *own]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{NUM_RUNS} " in done.stdout
        assert "skipped" not in done.stdout

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    benchmark.pedantic(open_it, rounds=3)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 3
    peak_mib = after.ru_maxrss / 1024
    benchmark.extra_info.update(peak_mib=round(peak_mib), cpu_s=round(cpu_s, 2))
    with capsys.disabled():
        took_s = benchmark.stats.stats.min
        used = f"{cpu_s:.2f} s of CPU, {peak_mib:.0f} MiB"
        print(f"\n  {command}, {NUM_RUNS} runs of 84 rows: {took_s:.2f} s (goal {goal_s}), {used}")
