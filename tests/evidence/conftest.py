"""One run on two GPUs of the fake driver, measured once, and copies of it to tamper with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evidence.forgery import Forgery, copy_of
from tests.run.gpu_run import measure
from tests.session_folders import made_once


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory, fake_library: Path) -> Path:
    """A run that holds, which tests only read; its suite is two folders above it."""
    evidence = made_once(tmp_path_factory, "evidence", lambda folder: measure(folder, fake_library))
    (run,) = (evidence / "runs").iterdir()
    return run


@pytest.fixture
def forgery(original: Path, tmp_path: Path) -> Forgery:
    """A copy to tamper with."""
    return copy_of(original, tmp_path)
