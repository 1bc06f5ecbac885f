"""The staged worker."""

from __future__ import annotations

from pathlib import Path

from pybench.engines.stage import WORKER_SCRIPT, stage_worker, worker_digest


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
