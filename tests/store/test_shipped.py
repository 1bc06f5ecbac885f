"""Suites by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.model.errors import FileError
from pybench.store.shipped import find_suite, shipped_suites


def test_a_bare_name_is_a_shipped_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless something here is called that."""
    monkeypatch.chdir(tmp_path)
    assert find_suite(Path("tp_scaling")) == shipped_suites() / "tp_scaling.toml"
    Path("tp_scaling").touch()
    assert find_suite(Path("tp_scaling")) == Path("tp_scaling")


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    """Also what can't be read: its reader says why."""
    (tmp_path / "own.toml").touch()
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "own.toml", tmp_path, tmp_path / "loop", tmp_path / "own.toml" / "s", Path("a" * 300)):
        assert find_suite(path) == path


@pytest.mark.parametrize("name", ["tp_scaling.toml", "folder/tp_scaling", "/tp_scaling"])
def test_a_missing_file_lists_what_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A shipped suite has neither folder nor ending."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match=r"no such file; shipped are .*tp_scaling.*, each by its bare name"):
        find_suite(Path(name))


def test_a_missing_file_has_neighbours(tmp_path: Path) -> None:
    """The likeliest is a slip of the finger."""
    (tmp_path / "drill.toml").touch()
    with pytest.raises(FileError, match=r"did you mean 'drill\.toml'\?; in that folder: drill\.toml; shipped are"):
        find_suite(tmp_path / "dril.toml")


def test_an_unknown_name_lists_what_there_is() -> None:
    """With the nearest one first."""
    with pytest.raises(FileError, match=r"neither .*; did you mean 'tp_scaling'\?; shipped are .*tp_scaling"):
        find_suite(Path("tp_scalin"))
