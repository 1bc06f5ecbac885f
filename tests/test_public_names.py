"""Names that a program may import from the package."""

from __future__ import annotations

import subprocess
import sys

import pybench
from tests.documents import ROOT


def test_every_public_name_is_there() -> None:
    """For ``import *``, and for the completion of an interactive Python."""
    assert set(pybench.__all__) <= set(dir(pybench))
    assert all(getattr(pybench, name) for name in pybench.__all__)


def test_a_users_program_runs_without_a_gpu() -> None:
    environment = {"PYBENCH_NVML_LIBRARY": "/no/such/library"}
    done = subprocess.run(
        [sys.executable, "tests/user_program.py"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[1].startswith("unknown energy in 0.00 s None ")
