"""A Python that answers, another program in its place, and a hostile one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pybench.machine import command
from pybench.machine.command import run_command
from pybench.run.engines.local import missing_packages, python_software
from tests.programs import shell_program


def program(folder: Path, shell: str) -> str:
    return str(shell_program(folder / "python", shell))


def test_this_python() -> None:
    """Its version, and those of the packages that it has."""
    found = python_software(sys.executable, ("pytest", "no_such_package"))
    assert found is not None
    assert found.python == sys.version.split()[0]
    assert found.packages == {"pytest": pytest.__version__}


@pytest.mark.parametrize(
    "answer",
    ["", "5", "null", '"abc"', "[1, {}]", '["3", {"a": 1}]', '["3", [["a", "1"]]]', "[" * 9999, '["3"]', "NaN"],
)
def test_another_answer_is_none(tmp_path: Path, answer: str) -> None:
    """Nothing of it gets into a manifest, which its own reader would refuse."""
    python = program(tmp_path, f"printf '%s' '{answer}'")
    assert python_software(python, ("a",)) is None
    assert missing_packages(python, ("a",)) == ()


def test_endless_output_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On either stream; the program is ended."""
    monkeypatch.setattr(command, "MAX_OUTPUT_BYTES", 2**20)
    for shell in ("exec cat /dev/zero", "exec cat /dev/zero >&2"):
        found = run_command((program(tmp_path, shell),))
        assert (found.code, found.error_line) == (None, f"{tmp_path}/python printed more than 1048576 bytes")


def test_a_program_that_closes_its_output_and_stays(tmp_path: Path) -> None:
    """It has the same time as any other."""
    found = run_command((program(tmp_path, "exec >&- 2>&-; exec sleep 600"),), limit_s=0.2)
    assert found.error_line.endswith("did not respond within 0.2 s")
