"""Folders that are made once in a session of pytest, also where its tests run in several processes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The session's folder of this name, which the first process fills by ``make``; the others wait, then only read."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # its own base is a folder of the session's
        base = base.parent
    folder = base / name
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            try:
                make(folder)
            except BaseException:
                shutil.rmtree(folder)
                raise
    return folder
