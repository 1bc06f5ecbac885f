"""The ready-made users of ``quick_check`` in docs/preflight: a systemd unit and a pod; tests/slurm has the prolog."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.builders import NO_DRIVER
from tests.documents import DOCS
from tests.programs import shell_program

FILES = DOCS / "preflight"
UNIT = FILES / "pybench-check.service"
# Verdicts that are not the node's fault: pass, a wrong command line, undecided.
KEEPING, DRAINING = (0, 2, 4), (1, 3, 130)


def _unit() -> configparser.SectionProxy:
    parser = configparser.ConfigParser()
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return parser["Service"]


def test_the_units_command_prints_one_json_line(tmp_path: Path, warm_pybench: Path, warm_python: Path) -> None:
    """With the paths of a test, and the training step alone."""
    command = _unit()["ExecStart"].replace("/opt/pybench/bin/pybench", str(warm_pybench))
    words = shlex.split(command.replace("/var/lib/pybench", str(tmp_path)))
    own = ["-k", "training_step", "--python", str(warm_python)]
    done = subprocess.run(
        [*words, *own], env={**os.environ, **dict([NO_DRIVER])}, capture_output=True, text=True, check=False
    )
    line = json.loads(done.stdout)
    assert (done.stdout.count("\n"), line["suite"], line["faults"]) == (1, "quick_check", [])
    assert Path(line["folder"]).parent == tmp_path


def test_the_unit_fails_for_a_bad_node_only() -> None:
    """And systemd reads it."""
    codes = {int(code) for code in _unit()["SuccessExitStatus"].split()} | {0}
    assert codes == set(KEEPING)
    if verify := shutil.which("systemd-analyze"):
        done = subprocess.run([verify, "verify", str(UNIT)], capture_output=True, text=True, check=False)
        complaints = [line for line in done.stderr.splitlines() if "is not executable" not in line]
        assert complaints == []


@pytest.mark.parametrize("code", [*KEEPING, *DRAINING])
def test_the_pod_starts_unless_its_node_is_bad(tmp_path: Path, code: int) -> None:
    """Its first container runs the check on the GPUs of the second, which share their memory for NCCL."""
    pod = yaml.safe_load((FILES / "pod.yaml").read_text())["spec"]
    (check,), (training,) = pod["initContainers"], pod["containers"]
    assert check["resources"] == training["resources"]
    gpus = check["resources"]["limits"]["nvidia.com/gpu"]
    assert f"--require gpus={gpus} " in check["args"][0]
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in check["volumeMounts"]
    assert pod["restartPolicy"] == "Never"
    shell_program(tmp_path / "pybench", f'echo "$@" > {tmp_path}/words; exit {code}')
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([*check["command"], *check["args"]], env={"PATH": path}, check=False)
    assert done.returncode == (0 if code in KEEPING else 1)
    assert re.match("run quick_check .*--format json-line$", (tmp_path / "words").read_text())
