"""Defaults of options that a project keeps in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.cli.params import read_defaults
from pybench.model.errors import FileError


def test_a_file_of_ones_own_goes_before_the_projects(tmp_path: Path) -> None:
    """Both name the same options; without either there are none."""
    assert read_defaults(tmp_path) == {}
    (tmp_path / "pyproject.toml").write_text('[tool.pybench]\nruns = "a"\n')
    assert read_defaults(tmp_path) == {"root": "a"}
    (tmp_path / "pybench.toml").write_text('runs = "b"\nengine = "none"\n')
    assert read_defaults(tmp_path) == {"root": "b", "engine": "none"}


@pytest.mark.parametrize(("text", "words"), [("run = 'a'", "did you mean 'runs'"), ("runs = 3", "expected a string")])
def test_a_mistake_is_named(tmp_path: Path, text: str, words: str) -> None:
    """With the file."""
    (tmp_path / "pybench.toml").write_text(text)
    with pytest.raises(FileError, match=words):
        read_defaults(tmp_path)
