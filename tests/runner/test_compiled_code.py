"""The folder for what workers in containers compile."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from pybench.runner.compiled_code import compiled_code, remove_compiled_code

MARK = "20261125T192433Z-tp_scaling-0123abcd"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_run_has_one_folder_for_each_backend(scratch: Path) -> None:
    """Nobody else reads what lies above it, and it goes with all it holds: links, not what they lead to."""
    path = compiled_code(MARK, "vllm")
    assert path is not None
    assert compiled_code(MARK, "vllm") == path
    assert compiled_code(MARK, "torch") == path.parent / "torch"
    assert path.parent.stat().st_mode & 0o777 == 0o700
    (scratch / "precious").mkdir()
    (path / "link").symlink_to(scratch / "precious")
    (path / "triton").mkdir()
    (path / "triton" / "code").write_text("compiled")
    other = compiled_code("another-run", "vllm")
    assert other is not None
    remove_compiled_code(MARK)
    assert sorted(scratch.iterdir()) == sorted([scratch / "precious", other.parent])
    remove_compiled_code(MARK)


def test_a_folder_that_somebody_laid_out_is_left_alone(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link, a file, another user's folder: workers do without."""
    place = scratch / f"pybench-{MARK}-compiled"
    (tmp_path / "precious").mkdir()
    place.symlink_to(tmp_path / "precious")
    assert compiled_code(MARK, "vllm") is None
    remove_compiled_code(MARK)
    assert list((tmp_path / "precious").iterdir()) == []
    place.unlink()
    place.touch()
    assert compiled_code(MARK, "vllm") is None
    place.unlink()
    place.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert compiled_code(MARK, "vllm") is None
    remove_compiled_code(MARK)
    assert place.is_dir()


def test_a_disk_that_runs_no_code_holds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton loads what it compiled as libraries."""
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID))
    assert compiled_code(MARK, "vllm") is None


def test_a_disk_that_takes_no_folder_holds_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No run fails for it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert compiled_code(MARK, "vllm") is None
    remove_compiled_code(MARK)
