"""Read one of pybench's TOML files, or report in plain words why it can't be read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from pybench.files.text_file import read_text, refuse
from pybench.files.toml.lines import KeyPath, toml_lines

# Far above any file of ours. The parser keeps every prefix of a dotted key: one of 50,000 parts takes gigabytes.
MAX_DOTS = 128
MAX_LEVELS = 16


def read_toml(path: Path, noun: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The document and the line of each key. Raises ``FileError``, calling the file ``noun``, unless small and TOML."""
    text = read_text(path, noun, 'schema = 1 and name = "…"')
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
