"""How often a GPU's counter is searched without a caller, by a native program."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def program(native: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native(tmp_path_factory.mktemp("search_budget") / "search_budget", "tests/native/search_budget.cpp")


@pytest.mark.parametrize("uptime_s", [0, 60, 400, 10**7])
def test_a_machine_that_booted_lately_may_search_as_often(program: Path, uptime_s: int) -> None:
    """Sixteen to spare and the one that is due, then one in 30 s: with fewer the grid is never known well."""
    command = [str(program), str(uptime_s)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["17", "19"]
