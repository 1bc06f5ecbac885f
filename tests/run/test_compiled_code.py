"""The folder for what workers in containers compile."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from pybench.run.loop import compiled_code, folder_of


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_run_has_one_folder_for_each_backend(scratch: Path) -> None:
    """Other users can't read its parent; its removal follows no links."""
    (scratch / "precious").mkdir()
    with compiled_code() as other:
        with compiled_code() as folder:
            assert folder is not None
            path = folder_of("vllm", folder)
            assert path is not None
            assert folder_of("vllm", folder) == path
            assert folder_of("torch", folder) == path.parent / "torch"
            assert path.parent.stat().st_mode & 0o777 == 0o700
            (path / "link").symlink_to(scratch / "precious")
            (path / "triton").mkdir()
            (path / "triton" / "code").write_text("compiled")
        assert other is not None
        assert sorted(scratch.iterdir()) == sorted([scratch / "precious", other])


def test_a_folder_that_somebody_laid_out_is_left_alone(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link, a file, another user's folder."""
    (tmp_path / "precious").mkdir()
    link, file, foreign = (scratch / f"pybench-compiled-{name}" for name in ("link", "file", "foreign"))
    link.symlink_to(tmp_path / "precious")
    file.touch()
    foreign.mkdir()
    for place in (tmp_path / "precious", file, foreign):
        os.utime(place, (0, 0))
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    with compiled_code() as folder:
        assert folder not in {None, link, file, foreign}
    assert (tmp_path / "precious").is_dir()
    assert sorted(scratch.iterdir()) == sorted([link, file, foreign])


def test_a_disk_that_runs_no_code_holds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton loads what it compiled as libraries."""
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_NOEXEC | os.ST_NOSUID))
    with compiled_code() as folder:
        assert folder is None


def test_a_disk_that_takes_no_folder_holds_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No run fails for it."""
    (tmp_path / "file").touch()
    assert folder_of("vllm", tmp_path / "file") is None
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with compiled_code() as folder:
        assert folder is None
