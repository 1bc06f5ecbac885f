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
from pathlib import Path

import pytest

from pybench.files.suite.schema import suite_schema
from pybench.model.results import Results
from pybench.report.run.results_json import values_schema
from tests.builders import NO_DRIVER
from tests.documents import ROOT

KEPT = ROOT / "suites" / "measured" / "node_check-h200x4-20261126.json"
FORMATS = ("terminal", "junit", "html", "openmetrics")
PLAN = ("plan", "tp_scaling", "--profile", "cpu", "--max-gpus", "2")
REPORTS = tuple(("report", str(KEPT), "--format", form) for form in FORMATS)
COMMANDS = (("schema",), ("schema", "results"), PLAN, *REPORTS, ("doctor",))
# Prints each command of its argument with its exit code and output: one process imports everything once.
_RUN = """
import json, sys
from click.testing import CliRunner
from pybench.cli.main import main
done = [(command, CliRunner().invoke(main, command)) for command in json.loads(sys.argv[1])]
print(json.dumps([(command, result.exit_code, result.stdout) for command, result in done]))
"""


def lowest() -> list[str]:
    """Each dependency at its lower bound."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    return [re.sub(">=", "==", requirement) for requirement in declared]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("versions", ["lowest", "newest"])
def test_commands_work_and_schemas_are_equal(wheel: Path, tmp_path: Path, versions: str) -> None:
    site = tmp_path / "site"
    install = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--ignore-installed",
        "--no-warn-conflicts",
    )
    pins = lowest() if versions == "lowest" else ()
    done = subprocess.run(
        [*install, "--target", str(site), str(wheel), *pins], capture_output=True, text=True, check=False
    )
    if done.returncode and not os.environ.get("PYBENCH_REQUIRE_INDEX"):
        pytest.skip(f"no package index: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr

    # The packages in ``site`` alone, where warnings are errors; doctor finds no engine, which it would ask for seconds.
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(site), **dict([NO_DRIVER])}

    def python(*arguments: str) -> str:
        command = [sys.executable, "-S", "-W", "error", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert python(str(site / "bin" / "pybench"), "--version").startswith("pybench")
    found = {
        tuple(command): (code, text) for command, code, text in json.loads(python("-c", _RUN, json.dumps(COMMANDS)))
    }
    doctor, _ = found.pop(("doctor",))
    assert doctor in {0, 3}
    assert {command: text for command, (code, text) in found.items() if code or not text} == {}
    assert json.loads(found["schema",][1]) == suite_schema()
    assert json.loads(found["schema", "results"][1]) == values_schema(Results)
    assert "2 points" in found[PLAN][1]
