"""Names that a program may import from the package."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata

import pytest

import pybench
from tests.documents import ROOT

_TEXT = (".md", ".py", ".toml", ".yaml", ".yml", ".sh")


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


def test_the_version_is_the_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout on the path without an installation, or with another project's ``pybench``, says so."""
    monkeypatch.setattr(metadata, "version", {"pybench-gpu": "1.2.3", "pybench": "0.0.1"}.__getitem__)
    assert pybench.__version__ == "1.2.3"

    def nothing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nothing)
    assert pybench.__version__ == "0.0.0+checkout"


@pytest.mark.parametrize("folder", ["docs", "pybench", "suites", "containers", ".github", "README.md"])
def test_no_remedy_installs_another_projects_pybench(folder: str) -> None:
    """``pybench`` on package indexes is not ours."""
    paths = (ROOT / folder).rglob("*.*") if (ROOT / folder).is_dir() else [ROOT / folder]
    text = {path: path.read_text(encoding="utf-8", errors="replace") for path in paths if path.suffix in _TEXT}
    stranger = re.compile(r"(?:pip|pipx|uv|uvx) [^\n]*[ '\"]pybench(?:[\[=<> '\"`]|$)", re.MULTILINE)
    assert not [path for path, words in text.items() if re.search(r"install", words) and stranger.search(words)]
