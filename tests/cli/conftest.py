"""A run to drill with: two points of a fake worker."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from tests.builders import NO_DRIVER
from tests.programs import fake_python
from tests.run.drill import suite_text, table_text
from tests.session_folders import made_once

SUITE = suite_text(max_attempts=2, time_limit_s=60)

Drill = Callable[..., tuple[str, ...]]


@pytest.fixture
def here(tmp_path: Path, no_driver: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, on a machine without GPUs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_drill(here: Path, behaviour: str = "ok", value: float = 2.0, **environment: str) -> tuple[str, ...]:
    """Write the drill's suite, its table and a Python that is the fake worker; returns the run's arguments.

    ``environment`` is the fake worker's.
    """
    (here / "drill.toml").write_text(SUITE)
    (here / "expected").mkdir(exist_ok=True)
    (here / "expected" / "drill.toml").write_text(table_text(value))
    python = fake_python(here / "python", behaviour, **environment)
    return ("run", "drill.toml", "--python", str(python))


@pytest.fixture
def drill(here: Path) -> Drill:
    """:func:`write_drill` in the folder that the test stands in."""
    return partial(write_drill, here)


@pytest.fixture(scope="session")
def drilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the drill ran once and passed."""

    def run(folder: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(*NO_DRIVER)
            patch.chdir(folder)
            assert CliRunner().invoke(main, write_drill(folder)).exit_code == 0

    return made_once(tmp_path_factory, "drilled", run)


@pytest.fixture
def finished(here: Path, drilled: Path) -> Path:
    """A finished run that passes, a copy of ``drilled``: two ranks are twice as fast as one."""
    shutil.copytree(drilled, here, dirs_exist_ok=True)
    (run,) = (here / "runs").iterdir()
    return run
