"""The wheel with the lowest and with the newest versions of its dependencies.

Needs a package index; fails without one where ``PYBENCH_REQUIRE_INDEX`` is set, as in CI, and is skipped elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from pybench.files.suite.schema import suite_schema
from pybench.model.results import Results
from pybench.report.run.results_json import values_schema
from tests.builders import NO_DRIVER
from tests.documents import ROOT

KEPT = ROOT / "suites" / "measured" / "node_check-h200x4-20261126.json"
FORMATS = ("terminal", "junit", "html", "openmetrics")


def lowest() -> list[str]:
    """Each dependency at its lower bound."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return [re.sub(">=", "==", requirement) for requirement in declared]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("versions", ["lowest", "newest"])
def test_commands_work_and_schemas_are_equal(wheel: Path, tmp_path: Path, versions: str) -> None:
    site = tmp_path / "site"
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--ignore-installed")
    pins = lowest() if versions == "lowest" else ()
    done = subprocess.run(
        [*install, "--target", str(site), str(wheel), *pins], capture_output=True, text=True, check=False
    )
    if done.returncode and not os.environ.get("PYBENCH_REQUIRE_INDEX"):
        pytest.skip(f"no package index: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr

    pybench = command(site, tmp_path)
    assert pybench("--version").startswith("pybench")
    assert json.loads(pybench("schema")) == suite_schema()
    assert json.loads(pybench("schema", "results")) == values_schema(Results)
    assert "2 points" in pybench("plan", "tp_scaling", "--profile", "cpu", "--max-gpus", "2")
    assert all(pybench("report", str(KEPT), "--format", form) for form in FORMATS)
    pybench("doctor", codes=(0, 3))


def command(site: Path, folder: Path) -> Callable[..., str]:
    """``pybench`` of the packages in ``site`` alone, whose warnings are errors."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(site), **dict([NO_DRIVER])}

    def run(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        program = [sys.executable, "-S", "-W", "error", str(site / "bin" / "pybench"), *arguments]
        done = subprocess.run(program, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode in codes, done.stderr
        return done.stdout

    return run
