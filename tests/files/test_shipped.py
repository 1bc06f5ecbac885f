"""Suites by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pybench.files.shipped import described_suites, find_suite, shipped_suites
from pybench.files.suite.file import read_suite
from pybench.files.toml_file import nearby
from pybench.model.errors import FileError
from pybench.report.plan import render_suites


def test_a_bare_name_is_a_shipped_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless something here is called that."""
    monkeypatch.chdir(tmp_path)
    assert find_suite(Path("tp_scaling")) == shipped_suites() / "tp_scaling.toml"
    Path("tp_scaling").touch()
    assert find_suite(Path("tp_scaling")) == Path("tp_scaling")


def test_a_folder_is_no_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that collects the runs of a shipped suite may have its name."""
    monkeypatch.chdir(tmp_path)
    for name in ("node_check", "own"):
        Path(name).mkdir()
    assert find_suite(Path("node_check")) == shipped_suites() / "node_check.toml"
    assert find_suite(Path("own")) == Path("own")


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    """Also an unreadable file: its reader names the reason."""
    (tmp_path / "own.toml").touch()
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "own.toml", tmp_path, tmp_path / "loop", tmp_path / "own.toml" / "s", Path("a" * 300)):
        assert find_suite(path) == path


@pytest.mark.parametrize(
    ("name", "near"),
    [
        (
            "tp_scaling.toml",
            "no such file; did you mean 'tp_scaling' or 'pp_scaling' or 'ddp_scaling'?; `pybench plan`",
        ),
        ("folder/tp_scalin", "no such file; did you mean 'tp_scaling' or "),
        ("/nowhere.toml", "no such file; `pybench plan` alone lists the shipped suites"),
        ("tp_scalin", "neither a file nor a shipped suite; did you mean 'tp_scaling' or "),
        ("zzz", "neither a file nor a shipped suite; `pybench plan` alone lists the shipped suites"),
    ],
)
def test_a_missing_file_has_the_nearest_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, near: str
) -> None:
    """In one line, with the command that lists them all; a shipped suite has neither folder nor ending."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match=re.escape(f"{name}: {near}")) as caught:
        find_suite(Path(name))
    assert len(str(caught.value)) < 200


def test_a_missing_file_has_neighbours(tmp_path: Path) -> None:
    """The likeliest is a slip of the finger."""
    (tmp_path / "drill.toml").touch()
    with pytest.raises(FileError, match=r"no such file; did you mean 'drill\.toml'\?; `pybench plan` alone lists"):
        find_suite(tmp_path / "dril.toml")


@pytest.mark.parametrize("name", ["own", "OWN.toml", "own.tml"])
def test_an_ending_that_is_left_out_is_the_first_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """And capitals, however short the name is."""
    monkeypatch.chdir(tmp_path)
    Path("own.toml").touch()
    with pytest.raises(FileError, match=rf"^{re.escape(name)}: .*; did you mean 'own\.toml'\?; `pybench plan`"):
        find_suite(Path(name))
    with pytest.raises(FileError, match=rf"^{re.escape(name)}: no such file; did you mean 'own\.toml'\?$"):
        read_suite(Path(name), profile=None, machine_kind="cpu")


@pytest.mark.parametrize("name", ["gone.toml", "gone", "tp_scaling"])
def test_a_link_that_leads_nowhere_is_named_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Its own name is not suggested."""
    monkeypatch.chdir(tmp_path)
    Path("zzz.toml").touch()
    Path(name).symlink_to("nowhere")
    message = f"{name}: a symbolic link to nowhere, which leads to no file; in that folder: zzz.toml"
    with pytest.raises(FileError, match=f"^{re.escape(message)}$"):
        read_suite(find_suite(Path(name)), profile=None, machine_kind="cpu")


def test_a_few_files_of_the_folder_where_none_is_near(tmp_path: Path) -> None:
    """And how many more there are."""
    for name in "abcde":
        (tmp_path / f"{name}.json").touch()
    assert nearby(tmp_path / "model_config.json", ".json") == "; in that folder: a.json, b.json, c.json and 2 more"
    assert nearby(tmp_path / "nowhere" / "model_config.json", ".json") == ""


def test_every_shipped_suite_is_listed_with_what_it_measures() -> None:
    """Each line begins with the name that commands take."""
    text = render_suites(described_suites())
    names = [path.stem for path in shipped_suites().glob("*.toml")]
    assert [line.partition(": ")[0] for line in text.splitlines() if line[0] != " "] == [*sorted(names), "next"]
    assert max(len(line) for line in text.splitlines()) <= 80
