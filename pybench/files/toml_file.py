"""Read one of pybench's TOML files, or report in plain words why it can't be read."""

from __future__ import annotations

import codecs
import re
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pybench.files.problem_text import KeyPath, closest, suggestion, toml_lines
from pybench.files.safe_folder import read_named
from pybench.model.errors import FileError, Problem, is_machine_fault
from pybench.model.text import abridged

MAX_FILE_BYTES = 2**20
MOST_NAMES = 3
"""Of files or suites, in a message."""


def refuse(path: Path, message: str, line: int | None = None) -> FileError:
    """Make the error of a file that can't be looked into at all."""
    return FileError((Problem(file=str(path), line=line, path="", message=message),))


def read_text(path: Path, noun: str, begins: str, ending: str = ".toml") -> str:
    """Text of a regular file of at most ``MAX_FILE_BYTES``.

    Raises ``FileError``, which calls the file ``noun`` and shows what it ``begins`` with where it is empty.
    """
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise refuse(path, f"not a regular file; {noun} is a {ending} file")
        if about.st_size > MAX_FILE_BYTES:
            raise refuse(path, f"{about.st_size} bytes; {noun} has at most {MAX_FILE_BYTES}")
        data = read_named(path, MAX_FILE_BYTES)  # some files of /proc have no size, and some wait for a reader
    except FileNotFoundError as error:
        found = f"a symbolic link to {path.readlink()}, which leads to no file" if path.is_symlink() else "no such file"
        raise refuse(path, f"{found}{nearby(path, ending)}") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and is_machine_fault(error):
            raise
        raise refuse(path, f"can't be read: {getattr(error, 'strerror', None) or error}") from error
    if not data.strip():
        raise refuse(path, f"empty; {noun} begins with {begins}")
    return _decoded(path, data, noun)


def _decoded(path: Path, data: bytes, noun: str) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise refuse(path, f"text in UTF-16; save {noun} as UTF-8")
    if b"\0" in data:
        raise refuse(path, f"binary data; {noun} is text")
    try:
        # Some editors begin a file with a byte order mark.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise refuse(path, "not UTF-8; save the file in that encoding", line) from error


def nearby(path: Path, ending: str = ".toml") -> str:
    """Name the closest files with that ending in the folder of ``path``; the first few where none is close."""
    names = names_beside(path, ending)
    beside = f"; in that folder: {abridged(names, MOST_NAMES)}" if names else ""
    return meant(path, names) or beside


def meant(path: Path, names: Iterable[str]) -> str:
    """Name those ``names`` that differ from that of ``path`` in case or ending alone, and the closest others."""
    names = tuple(names)
    same = [name for name in names if Path(name).stem.casefold() == path.stem.casefold()]
    return suggestion([*dict.fromkeys((*same, *closest(path.name, names, MOST_NAMES)))][:MOST_NAMES])


def names_beside(path: Path, ending: str = ".toml") -> list[str]:
    """Other files with that ending in the folder that ``path`` was looked for in, sorted."""
    names = (other.name for other in path.parent.glob(f"*{ending}")) if path.parent.is_dir() else ()
    return sorted(name for name in names if name != path.name)


def read_toml(path: Path, noun: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The document and the line of each key. Raises ``FileError``, calling the file ``noun``, unless small and TOML."""
    text = read_text(path, noun, 'schema = 1 and name = "…"')
    try:
        document = tomllib.loads(text)
        return document, toml_lines(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise refuse(path, f"not valid TOML: {error}", int(line[1]) if line else None) from error
    except RecursionError as error:
        raise refuse(path, f"nested too deeply; {noun} needs no more than four levels") from error
    except ValueError as error:
        raise refuse(path, f"not valid TOML: {error}") from error
