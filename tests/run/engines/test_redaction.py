"""Secrets out of records and files, however they were spelled."""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pybench.model.record import RankReport
from pybench.model.wire import Failure
from pybench.run.engines.environment import Redaction
from tests.builders import HEADER

PLAIN, QUOTED = "t0ken-1", 'pa"ss\\wörd'
REDACTION = Redaction((PLAIN, QUOTED))


def test_every_text_of_a_record() -> None:
    """In whatever field, tuple or mapping it hides; numbers stay numbers."""
    report = RankReport(header=replace(HEADER, device_name=f"cpu {PLAIN}", packages={"torch": PLAIN}), warmup_steps=3)
    cleaned = REDACTION.of((report, Failure(cause="exception", message=f"no {QUOTED}", detail=f"{PLAIN}{PLAIN}")))
    assert cleaned == (
        RankReport(header=replace(HEADER, device_name="cpu ***", packages={"torch": "***"}), warmup_steps=3),
        Failure(cause="exception", message="no ***", detail="******"),
    )


@pytest.mark.parametrize("spelled", [QUOTED, repr(QUOTED), json.dumps(QUOTED), json.dumps({"a": [QUOTED]})])
def test_python_and_json_escape_it(spelled: str) -> None:
    """The whole of it goes, not the part between two escapes."""
    cleaned = REDACTION.of(f"before {spelled} after")
    assert "***" in cleaned
    assert not {"pa", "ss", "rd"} & set(cleaned.replace('"', " ").replace("\\", " ").split())


def test_the_longer_of_two_comes_first() -> None:
    """One secret may begin with another."""
    assert Redaction(("abcd", "abcdef")).of("abcdef abcd") == "*** ***"


def test_files_keep_all_else(tmp_path: Path) -> None:
    """Also bytes that are no text, also below; links are not followed."""
    below, outside = tmp_path / "attempt" / "exchange", tmp_path / "outside"
    below.mkdir(parents=True)
    (below / "log").write_bytes(b"\xff\x00 " + PLAIN.encode() + b"\nnext " + QUOTED.encode() + b"\n")
    (below / "clean").write_bytes(b"nothing\n")
    outside.write_text(PLAIN)
    (below / "link").symlink_to(outside)
    os.mkfifo(below / "pipe")
    before = (below / "clean").stat()
    REDACTION.files(tmp_path / "attempt")
    assert (below / "log").read_bytes() == b"\xff\x00 ***\nnext ***\n"
    assert (below / "clean").stat().st_mtime_ns == before.st_mtime_ns
    assert outside.read_text() == PLAIN


def test_what_cannot_be_looked_into_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may take its reader's leave to read."""

    def refuse(_path: Path, _mode: str) -> object:
        raise PermissionError

    (tmp_path / "hidden").write_text(PLAIN)
    monkeypatch.setattr(Path, "open", refuse)
    REDACTION.files(tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_secrets_nothing_is_touched(tmp_path: Path) -> None:
    """Not even read."""
    (tmp_path / "log").write_text("abc")
    Redaction(()).files(tmp_path)
    assert (tmp_path / "log").read_text() == "abc"
    assert Redaction(()).of("abc") == "abc"


def test_a_file_too_large_to_read_is_removed(tmp_path: Path) -> None:
    """A sparse file of 64 GiB, which a worker makes in no time, fills no memory of the host."""
    path = tmp_path / "huge"
    with path.open("wb") as stream:
        stream.truncate(64 * 2**30)
    (tmp_path / "log").write_text(f"{PLAIN}\n")
    REDACTION.files(tmp_path)
    assert not path.exists()
    assert (tmp_path / "log").read_text() == "***\n"


def test_names_of_files_and_folders(tmp_path: Path) -> None:
    """Also two names that become equal, a folder inside another, and the target of a link."""
    (tmp_path / f"a-{PLAIN}" / f"b-{PLAIN}").mkdir(parents=True)
    (tmp_path / f"a-{PLAIN}" / f"b-{PLAIN}" / "log").write_text(f"{PLAIN}\n")
    (tmp_path / "a-***").write_text("kept")
    (tmp_path / "link").symlink_to(f"/nowhere/{PLAIN}")
    (tmp_path / "other").symlink_to("/nowhere")
    os.mkfifo(tmp_path / PLAIN)
    REDACTION.files(tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")} == {
        *("***", "a-***", "a-***.2", "a-***.2/b-***", "a-***.2/b-***/log", "other"),
    }
    assert (tmp_path / "a-***.2" / "b-***" / "log").read_text() == "***\n"
    assert (tmp_path / "a-***").read_text() == "kept"


def test_a_secret_of_several_lines(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\nBEGIN\nkey\nEND\nafter\n")
    Redaction(("BEGIN\nkey\nEND",)).files(tmp_path)
    assert (tmp_path / "log").read_text() == "before\n***\nafter\n"


def test_a_folder_that_cannot_be_listed_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose worker took away everybody's leave, root's aside, to list it."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "log").write_text(PLAIN)
    plain = os.scandir

    def refuse(path: Any) -> Any:
        if path == str(hidden) and stat.S_IMODE(hidden.stat().st_mode) == 0:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return plain(path)

    hidden.chmod(0)
    monkeypatch.setattr(os, "scandir", refuse)
    REDACTION.files(tmp_path)
    assert not list(tmp_path.iterdir())
