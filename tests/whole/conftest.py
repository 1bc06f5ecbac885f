"""The wheel, built once for all tests that install it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.session_folders import made_once


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the checkout's tracked and untracked files, without the network.

    In the folder that the editable install compiled in: what has not changed since then is compiled once.
    """

    def build(folder: Path) -> None:
        command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation")
        subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True)

    (built,) = made_once(tmp_path_factory, "wheel", build).glob("*.whl")
    return built
