"""Scratch folders of processes, and what killed ones left."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from pybench.machine.disk import scratch_folder


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> None:
    """Let an hour go by."""
    an_hour_ago_s = time.time() - 3600
    os.utime(folder, (an_hour_ago_s, an_hour_ago_s))


def test_what_a_killed_process_left_is_removed(room: Path) -> None:
    """Held and young folders stay, as do other prefixes and targets of links."""
    left, young, other, linked = (room / name for name in ("node-left", "node-young", "other-1", "elsewhere"))
    for folder in (left, young, other, linked):
        folder.mkdir()
        (folder / "file").write_text("contents", encoding="utf-8")
    (room / "node-link").symlink_to(linked)
    with scratch_folder("node-") as held:
        for folder in (held, left, other, linked):
            aged(folder)
        with scratch_folder("node-") as own:
            assert own != held
            assert not left.exists()
            assert all((folder / "file").exists() for folder in (young, other, linked))
            assert held.is_dir()
    assert not own.exists()
    assert not held.exists()
