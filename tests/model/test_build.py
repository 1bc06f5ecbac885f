"""A build is the source of the package, whatever its version says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.model import machine as build


def test_a_build_changes_with_any_module_or_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with its name; a file of another kind does not count."""
    monkeypatch.setattr(build, "__file__", str(tmp_path / "model" / "machine.py"))
    builds = []
    for name, text in (
        ("model/results.py", "VERSION = 2"),
        ("model/results.py", "VERSION = 3"),
        ("_energy.so", "1"),
        ("core/results.py", ""),
        ("core/notes.txt", ""),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        builds.append(build.this_build.__wrapped__())
    assert len(set(builds)) == 4
    assert builds[-1] == builds[-2]
