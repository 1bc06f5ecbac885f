"""Read one of pybench's TOML files, or report in plain words why it can't be read."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from pybench.model.errors import FileError, Problem, is_machine_fault
from pybench.store.toml.lines import KeyPath, toml_lines
from pybench.store.toml.problem_text import did_you_mean

MAX_FILE_BYTES = 2**20
# Far above any file of ours. The parser keeps every prefix of a dotted key: one of 50,000 parts takes gigabytes.
MAX_DOTS = 128
MAX_LEVELS = 16


def refuse(path: Path, message: str, line: int | None = None) -> FileError:
    """Make the error of a file that can't be looked into at all."""
    return FileError((Problem(file=str(path), line=line, path="", message=message),))


def read_toml(path: Path, noun: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The document and the line of each key. Raises ``FileError``, calling the file ``noun``, unless small and TOML."""
    text = _text(path, noun)
    _refuse_dots(path, text, noun)
    try:
        document = tomllib.loads(text)
        lines = None if _is_deep(document) else toml_lines(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise refuse(path, f"not valid TOML: {error}", int(line[1]) if line else None) from error
    except RecursionError:
        lines = None
    except ValueError as error:
        raise refuse(path, f"not valid TOML: {error}") from error
    if lines is None:
        raise refuse(path, f"nested too deeply; {noun} needs no more than four levels")
    return document, lines


def _refuse_dots(path: Path, text: str, noun: str) -> None:
    for number, line in enumerate(text.splitlines(), start=1):
        if (dots := line.count(".")) > MAX_DOTS:
            message = f"{dots} dots in one line, at most {MAX_DOTS} are allowed; {noun} has keys of at most four parts"
            raise refuse(path, message, number)


def _is_deep(document: dict[str, Any]) -> bool:
    """Whether tables and arrays are nested beyond ``MAX_LEVELS``, found level by level."""
    level: list[Any] = [document]
    for _ in range(MAX_LEVELS):
        inner = [list(value.values()) if isinstance(value, dict) else value for value in level]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    return bool(level)


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
        if isinstance(error, OSError) and is_machine_fault(error):
            raise
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
