"""Two of the shipped training suites, measured on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.builders import NO_DRIVER

pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("accelerate")


def measured(name: str, folder: Path, pybench: Path, python: Path) -> dict[str, Any]:
    """Results of a run of the shipped suite by the command: an attempt for each point, of the smallest model."""
    environ = {**os.environ, **dict([NO_DRIVER])}
    own = ("--engine", "none", "--python", python, "--profile", "cpu", "--set", "model=llama-tiny", "--attempts", "1")
    command = (pybench, "run", name, *own, "--runs", folder)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1, 4}, done.stderr
    (path,) = folder.glob("*/results.json")
    results: dict[str, Any] = json.loads(path.read_text())
    assert {point["status"] for point in results["points"]} <= {"ok", "skipped"}
    return results


@pytest.mark.timeout(1200)
def test_ddp_scaling_is_measured(tmp_path: Path, warm_pybench: Path, warm_python: Path) -> None:
    """Speedups of both kinds without a figure to judge them, the job's time too; strong scaling shows one loss."""
    results = measured("ddp_scaling", tmp_path, warm_pybench, warm_python)
    assert [(row["metric"], row["scaling"], row["verdict"]) for row in results["scaling"]] == [
        ("tokens_per_s", "weak", "no_expectation"),
        ("job_h", "weak", "no_expectation"),
        ("tokens_per_s", "strong", "no_expectation"),
    ]
    assert [(row["num_gpus"], row["steps"]) for row in results["jobs"]] == [(1, 3 * 1343), (2, 3 * 672)]
    assert all(row["speedup"] > 0 for row in results["scaling"])
    # On the CPU both kinds have one joint batch of four samples at two ranks.
    assert [(check["metric"], check["verdict"]) for check in results["checks"]] == [("loss_deviation", "pass")] * 2
    weak = {point["id"]: point["metrics"] for point in results["points"]}["weak[data_parallel=2]"]
    assert 0 <= weak["exposed_communication_fraction"]["value"] < 1
    assert weak["loss"]["value"] > 0


@pytest.mark.timeout(1200)
def test_train_strategies_are_measured(tmp_path: Path, warm_pybench: Path, warm_python: Path) -> None:
    """Every way of sharing the same batch shows the same loss: one check for each point but the baseline."""
    results = measured("train_strategies", tmp_path, warm_pybench, warm_python)
    assert len(results["points"]) == 8
    assert len(results["checks"]) == 7
    assert {check["verdict"] for check in results["checks"]} == {"pass"}
