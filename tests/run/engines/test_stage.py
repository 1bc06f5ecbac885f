"""The staged worker."""

from __future__ import annotations

import os
from pathlib import Path

from pybench.run.engines.stage import WORKER_SCRIPT, installed_digest, stage_worker, worker_digest


def test_stage_holds_the_wire_types_and_the_worker_only(tmp_path: Path) -> None:
    """Nothing of the host's rooms reaches a foreign image."""
    stage_worker(tmp_path)
    assert (tmp_path / WORKER_SCRIPT).is_file()
    assert {path.name for path in (tmp_path / "pybench").iterdir()} == {"__init__.py", "model", "worker"}
    assert not list(tmp_path.rglob("__pycache__"))


def test_digest_changes_with_one_byte(tmp_path: Path) -> None:
    """The digest is what a resumed run trusts."""
    stage_worker(tmp_path / "a")
    script = tmp_path / "a" / WORKER_SCRIPT
    stage_worker(tmp_path / "b")
    assert worker_digest(tmp_path / "a") == worker_digest(tmp_path / "b")
    script.write_text(script.read_text() + "\n")
    assert worker_digest(tmp_path / "a") != worker_digest(tmp_path / "b")


def test_a_staged_worker_is_this_installations(tmp_path: Path) -> None:
    """Whatever is added to it, source or not, makes it another one."""
    stage_worker(tmp_path)
    assert worker_digest(tmp_path) == installed_digest()
    for name, make in (
        ("pybench/worker/extra.pyc", lambda path: path.write_bytes(b"code")),
        ("sitecustomize.py", lambda path: path.write_text("")),
        ("pybench/worker/link", lambda path: path.symlink_to("/tmp")),
        ("pybench/worker/pipe", os.mkfifo),
    ):
        make(tmp_path / name)
        assert worker_digest(tmp_path) != installed_digest(), name
        (tmp_path / name).unlink()
    assert worker_digest(tmp_path) == installed_digest()
