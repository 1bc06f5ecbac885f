"""Read a TOML file of ours, or say in plain words why not."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from pybench.model.errors import FileError, Problem
from pybench.store.problem_text import did_you_mean
from pybench.store.toml_lines import KeyPath, toml_lines

MAX_FILE_BYTES = 2**20


def refuse(path: Path, message: str, line: int | None = None) -> FileError:
    """Make the error of a file that can't be looked into at all."""
    return FileError((Problem(file=str(path), line=line, path="", message=message),))


def read_toml(path: Path, noun: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The document and the line of each key. Raises ``FileError``, calling the file ``noun``, unless small and TOML."""
    text = _text(path, noun)
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


def _text(path: Path, noun: str) -> str:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise refuse(path, f"not a regular file; {noun} is a .toml file")
        if about.st_size > MAX_FILE_BYTES:
            raise refuse(path, f"{about.st_size} bytes; {noun} has at most {MAX_FILE_BYTES}")
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise refuse(path, f"no such file{nearby(path)}") from error
    except (OSError, ValueError) as error:
        raise refuse(path, f"can't be read: {error}") from error
    if not data.strip():
        raise refuse(path, f'empty; {noun} begins with schema = 1 and name = "…"')
    if b"\0" in data:
        raise refuse(path, f"binary data; {noun} is a TOML text file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise refuse(path, "not UTF-8; save the file in that encoding", line) from error


def nearby(path: Path) -> str:
    """Name the TOML files of the folder that ``path`` was looked for in, the closest first, or nothing."""
    names = sorted(other.name for other in path.parent.glob("*.toml")) if path.parent.is_dir() else []
    found = f"; in that folder: {', '.join(names[:20])}" if names else ""
    return did_you_mean(path.name, names) + found
