"""A step whose first task leaves a verdict, or none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pybench.model.errors import MachineError
from pybench.run.slurm import run_step

TASK = """
import json, os, sys
assert len(os.environ["PYBENCH_RENDEZVOUS_SECRET"]) >= 16
with open(os.environ["PYBENCH_SLURM_VERDICTS"] + "/0.json", "w") as stream:
    json.dump({"host": "n1", "exit_code": 1}, stream)
print("progress", file=sys.stderr)
sys.exit(143)
"""


def test_the_verdict_counts_not_the_code_of_srun(tmp_path: Path) -> None:
    """Slurm mixes the codes of all tasks."""
    shown: list[str] = []
    assert run_step((sys.executable, "-c", TASK), tmp_path / "runs", os.environ, shown.append) == 1
    assert shown == ["progress"]
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (
            "exit 0",
            r"srun ended with code 0, and the first node left no verdict; is .*runs a folder that all nodes share",
        ),
        (
            "echo srun: error: Munge encode failed >&2; exit 1",
            "code 1, .*; munge does not answer: start it on every node",
        ),
        ("echo srun: error: Unable to allocate >&2; exit 1", "code 1, .*; srun's own lines are above"),
    ],
)
def test_no_verdict_is_trouble_of_the_machine(tmp_path: Path, command: str, line: str) -> None:
    with pytest.raises(MachineError, match=line):
        run_step(("sh", "-c", command), tmp_path / "runs", os.environ, lambda _line: None)


def test_no_slurm(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="to measure this host alone: env -u SLURM_JOB_ID"):
        run_step(("/nonexistent/srun",), tmp_path, os.environ, lambda _line: None)
