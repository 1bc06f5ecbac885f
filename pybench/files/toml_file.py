"""Read a TOML file of pybench, and report a fault by its place, its value and the valid values."""

from __future__ import annotations

import codecs
import difflib
import re
import stat
import tomllib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import tree_sitter_toml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from tree_sitter import Language, Node, Parser

from pybench.files.reader import decode_json
from pybench.files.safe_folder import read_named
from pybench.model.errors import FileError, Problem, ProblemKind, fault_text, is_machine_fault
from pybench.model.text import abridged, plural
from pybench.model.workloads.settings import ALL_GPUS, REST

MAX_FILE_BYTES = 2**20
MAX_PROBLEMS = 50
MOST_NAMES = 3
"""Of files or suites, in a message."""


def read_json(path: Path, noun: str, expected: str) -> tuple[dict[str, Any], Check]:
    """As :func:`read_toml`, of a JSON file without lines; ``expected`` describes its table."""
    try:
        values = decode_json(read_text(path, noun, "{", ".json").encode())
    except ValueError as error:
        raise refuse(path, f"{error}", kind="syntax") from error
    if not isinstance(values, dict):
        raise refuse(path, f"found {describe(values)}, expected {expected}", kind="schema")
    return values, partial(_refuse_keys, path, values, {})


def refuse(path: Path, message: str, line: int | None = None, kind: ProblemKind = "unreadable") -> FileError:
    """Make the error of a file that can't be looked into at all."""
    return FileError((Problem(kind=kind, file=str(path), line=line, path="", message=message),))


def read_text(path: Path, noun: str, begins: str, ending: str = ".toml") -> str:
    """Text of a regular file of at most ``MAX_FILE_BYTES``. Raises ``FileError``, which names the ``noun``."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise refuse(path, f"not a regular file; {noun} is a {ending} file")
        if about.st_size > MAX_FILE_BYTES:
            raise refuse(path, f"{about.st_size} bytes; {noun} has at most {MAX_FILE_BYTES}")
        data = read_named(path, MAX_FILE_BYTES)  # some files of /proc have no size, and some wait for a reader
    except FileNotFoundError as error:
        fault = f"a symbolic link to {path.readlink()}, which leads to no file" if path.is_symlink() else "no such file"
        raise refuse(path, f"{fault}{nearby(path, ending)}") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and is_machine_fault(error):
            raise
        raise refuse(path, f"can't be read: {fault_text(error)}") from error
    if not data.strip():
        raise refuse(path, f"empty; {noun} begins with {begins}")
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
    return meant(path, names) or (f"; in that folder: {abridged(names, MOST_NAMES)}" if names else "")


def meant(path: Path, names: Iterable[str]) -> str:
    """Name those ``names`` that differ from that of ``path`` in case or ending alone, and the closest others."""
    names = tuple(names)
    same = [name for name in names if Path(name).stem.casefold() == path.stem.casefold()]
    close = difflib.get_close_matches(path.name[:_MAX_TEXT], names, n=MOST_NAMES, cutoff=_LIKE)
    return suggestion([*dict.fromkeys((*same, *close))][:MOST_NAMES])


def names_beside(path: Path, ending: str = ".toml") -> list[str]:
    """Other files with that ending in the folder that ``path`` was looked for in, sorted."""
    names = (other.name for other in path.parent.glob(f"*{ending}")) if path.parent.is_dir() else ()
    return sorted(name for name in names if name != path.name)


# Far above any file of ours. The parser keeps every prefix of a dotted key: one of 50,000 parts takes gigabytes.
MAX_DOTS = 128
MAX_LEVELS = 16


def read_toml(path: Path, noun: str) -> tuple[dict[str, Any], Check]:
    """The document, and what refuses its keys. Raises ``FileError``, calling it ``noun``, unless small and TOML."""
    text = read_text(path, noun, 'schema = 1 and name = "…"')
    for number, line in enumerate(text.splitlines(), start=1):
        if (dots := line.count(".")) > MAX_DOTS:
            message = f"{dots} dots in one line, at most {MAX_DOTS} are allowed; {noun} has keys of at most four parts"
            raise refuse(path, message, number, "syntax")
    try:
        document = tomllib.loads(text)
        level: list[Any] = [document]  # tables and arrays, nested one level deeper each time
        for _ in range(MAX_LEVELS):
            inner = [list(value.values()) if isinstance(value, dict) else value for value in level]
            level = [value for values in inner for value in values if isinstance(value, dict | list)]
        lines = None if level else toml_lines(text)
    except RecursionError:
        lines = None
    except ValueError as error:  # TOMLDecodeError, or a number of too many digits
        place = re.search(r"at line (\d+)", str(error))
        raise refuse(path, f"not valid TOML: {error}", int(place[1]) if place else None, "syntax") from error
    if lines is None:
        raise refuse(path, f"nested too deeply; {noun} needs no more than four levels", kind="syntax")
    return document, partial(_refuse_keys, path, document, lines)


# Number of keys that fill a screen.
_MANY = 20
# Of two words; `duration` is like `quantization` to 0.6.
_LIKE = 0.65
_MAX_TEXT = 60
_BARE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def describe(value: object) -> str:
    """Show a value of TOML or JSON on one line, shortened."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"an array of {plural(len(value), 'value')}"
    if isinstance(value, int) and value.bit_length() > 128:  # noqa: PLR2004 - longer is no number anyone reads
        return "an enormous integer"
    if isinstance(value, str):
        value = value[: _MAX_TEXT + 1]
    text = repr(value) if isinstance(value, (str, float, int)) else f"the date or time {value}"
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def did_you_mean(given: object, valid: Iterable[str]) -> str:
    """Name the closest valid word, or nothing."""
    word = given[:_MAX_TEXT] if isinstance(given, str) else ""
    return suggestion(difflib.get_close_matches(word, list(valid), n=1, cutoff=_LIKE))


def suggestion(words: Iterable[str]) -> str:
    """Question whether a word was meant; empty without words."""
    listed = " or ".join(map(repr, words))
    return f"; did you mean {listed}?" if listed else ""


def valid_text(given: object, valid: Iterable[str]) -> str:
    """Of many valid words the closest, else all."""
    names = sorted(valid)
    close = did_you_mean(given, names)
    if close and len(names) > _MANY:
        return f"{close} `pybench schema` lists all"
    return f"{close}; valid are {', '.join(names) or 'none'}"


def _refuse_keys(
    path: Path, document: dict[str, Any], lines: dict[KeyPath, int], kind: ProblemKind, problems: Iterable[KeyProblem]
) -> None:
    """Raise ``FileError`` with these problems of one kind, if there are any, in the order of their lines."""
    placed = []
    for keys, message in problems:
        # The line of a missing key is that of the closest table around it.
        line = next((lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines), None)
        placed.append(Problem(kind=kind, file=str(path), line=line, path=key_text(keys, document), message=message))
    more = Problem(kind="more", file=str(path), line=None, path="", message="more problems follow; fix these first")
    first = sorted(placed[:MAX_PROBLEMS], key=lambda problem: problem.line or 0)
    if first:
        raise FileError((*first, *([more] if len(placed) > MAX_PROBLEMS else [])))


def key_text(path: KeyPath, document: dict[str, Any]) -> str:
    """Key path in the file's own words, e.g. ``[[benchmark]] "decode" -> axes.tensor_parallel[2]``."""
    if path[:1] in (("benchmark",), ("image",)) and len(path) > 1 and isinstance(path[1], int):
        table = document[str(path[0])][path[1]]
        name = table.get("name") if isinstance(table, dict) else None
        is_named = isinstance(name, str) and _BARE.fullmatch(name)
        head = f'[[{path[0]}]] "{name}"' if is_named else f"{path[0]}[{path[1]}]"
        rest = path[2:]
    elif path[:1] == ("profile",) and len(path) > 1:
        end = 4 if path[2:3] == ("benchmark",) and len(path) > 3 else 2  # noqa: PLR2004 - profile.NAME.benchmark.BENCH
        head, rest = f"[{dotted(path[:end])}]", path[end:]
    else:
        return dotted(path)
    return f"{head} -> {dotted(rest)}" if rest else head


def dotted(path: KeyPath) -> str:
    """Keys apart by dots, places in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else describe(part))
    return text


def faults(model: type[BaseModel], values: dict[str, Any]) -> list[ErrorDetails]:
    """What ``model`` refuses of a table, at most one more than a message lists."""
    try:
        model.model_validate(values)
    except ValidationError as error:
        return error.errors(include_url=False)[: MAX_PROBLEMS + 1]
    return []


_KINDS = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "list_type": "an array",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "finite_number": "a finite number",
}


def message_of(  # noqa: C901, PLR0911 - a flat list of cases reads best
    error: ErrorDetails, siblings: Iterable[str], *, beside_numbers: bool = False
) -> str:
    """One pydantic error in plain words; ``siblings`` are valid keys, ``beside_numbers`` numbers are, too."""
    kind, context, given = error["type"], error.get("ctx", {}), error["input"]
    if kind == "missing":
        return "missing, and it is required"
    if kind == "extra_forbidden":
        return f"unknown key{valid_text(error['loc'][-1], siblings)}"
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        if (close := did_you_mean(given, words)) and len(words) > _MANY:
            return f"found {describe(given)}{close} `pybench schema` lists all"
        elsewhere = _ELSEWHERE if given in _ALL and {*words} & {*_ALL} else ""
        valid = f"{'a number or ' if beside_numbers else ''}{context['expected']}"
        return f"found {describe(given)}, valid: {valid}{elsewhere or did_you_mean(given, words)}"
    if kind in _KINDS:
        return f"found {describe(given)}, expected {_KINDS[kind]}{_ELSEWHERE if given in _ALL else ''}"
    if kind in {"greater_than_equal", "less_than_equal"}:
        limit = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
        return f"found {describe(given)}, must be {limit}"
    if kind == "string_pattern_mismatch":
        return f"found {describe(given)}; {_PATTERN}"
    if kind == "too_short":
        return "empty, needs at least one value"
    if kind == "too_long":
        return f"found {len(given)} values, at most {context['max_length']} are allowed"
    if kind == "union_tag_invalid":
        return f"workload: found {describe(context['tag'])}, valid: {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return "workload is missing, and it is required"
    return f"found {describe(given)}: {error['msg']}"


_ELSEWHERE = (
    f"; {ALL_GPUS!r} belongs in an axis of GPUs, such as axes.gpus or axes.data_parallel, {REST!r} in one such setting"
)
_ALL = (ALL_GPUS, REST)
_PATTERN = "a name is 1 to 64 of A-Z a-z 0-9 _ . - and begins with a letter, digit or _; text has no control characters"

KeyPath = tuple[str | int, ...]
KeyProblem = tuple[KeyPath, str]
"""Where in the document, and what is wrong there."""
Check = Callable[[ProblemKind, Iterable[KeyProblem]], None]
"""Raises ``FileError`` with the problems of one kind, if there are any."""


def toml_lines(text: str) -> dict[KeyPath, int]:
    """Lines (from 1) by key path, such as ``("benchmark", 0, "axes", "backend", 1)``, of valid TOML."""
    lines: dict[KeyPath, int] = {}
    array_lengths: dict[KeyPath, int] = {}

    def add(node: Node, path: KeyPath) -> None:
        """Add the keys and values of a node below ``path``."""
        children = [child for child in node.named_children if child.type != "comment"]
        is_of_array = node.type == "table_array_element"
        if node.type == "array":
            for index, child in enumerate(children):
                lines[*path, index] = child.start_point.row + 1
                add(child, (*path, index))
        elif node.type in {"pair", "table", "table_array_element"}:
            header, *children = children
            keys = _keys(header)
            for depth, key in enumerate(keys):
                path = (*path, key)
                lines.setdefault(path, node.start_point.row + 1)
                if is_of_array and depth == len(keys) - 1:
                    array_lengths[path] = array_lengths.get(path, 0) + 1
                if node.type != "pair" and path in array_lengths:
                    path = (*path, array_lengths[path] - 1)
                    lines.setdefault(path, node.start_point.row + 1)
        if node.type in {"document", "inline_table", "pair", "table", "table_array_element"}:
            for child in children:
                add(child, path)

    add(Parser(Language(tree_sitter_toml.language())).parse(text.encode()).root_node, ())
    return lines


def _keys(node: Node) -> list[str]:
    """Parts of a bare, quoted or dotted key."""
    if node.type == "dotted_key":
        return [key for child in node.named_children for key in _keys(child)]
    text = (node.text or b"").decode()
    if node.type == "bare_key":
        return [text]
    return [next(iter(tomllib.loads(f"{text}=0")))]
