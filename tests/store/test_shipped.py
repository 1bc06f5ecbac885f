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


@pytest.mark.parametrize("name", ["own.toml", "folder/tp_scaling", "/tp_scaling"])
def test_a_path_is_taken_as_it_is(name: str) -> None:
    """Whether or not it exists."""
    assert find_suite(Path(name)) == Path(name)


def test_an_unknown_name_lists_what_there_is() -> None:
    """With the nearest one first."""
    with pytest.raises(FileError, match=r"neither .*; did you mean 'tp_scaling'\?; shipped are .*tp_scaling"):
        find_suite(Path("tp_scalin"))
