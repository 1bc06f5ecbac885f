"""Messages for faults of a suite file: place, value, valid values."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from typing import Any

import tree_sitter_toml
from pydantic_core import ErrorDetails
from tree_sitter import Language, Node, Parser

from pybench.model.text import plural
from pybench.model.workloads.settings import ALL_GPUS, REST

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


def did_you_mean(found: object, valid: Iterable[str]) -> str:
    """Name the closest valid word, or nothing."""
    return suggestion(closest(found, valid, 1)) if isinstance(found, str) else ""


def closest(found: str, valid: Iterable[str], most: int) -> list[str]:
    """The ``most`` valid words closest to ``found``, the closest first."""
    return difflib.get_close_matches(found[:_MAX_TEXT], list(valid), n=most, cutoff=_LIKE)


def suggestion(words: Iterable[str]) -> str:
    """Question whether a word was meant; empty without words."""
    listed = " or ".join(map(repr, words))
    return f"; did you mean {listed}?" if listed else ""


def valid_text(found: object, valid: Iterable[str]) -> str:
    """Of many valid words the closest, else all."""
    names = sorted(valid)
    close = did_you_mean(found, names)
    if close and len(names) > _MANY:
        return f"{close} `pybench schema` lists all"
    return f"{close}; valid are {', '.join(names) or 'none'}"


def key_text(path: KeyPath, document: dict[str, Any]) -> str:
    """Key path in the file's own words, e.g. ``[[benchmark]] "decode" -> axes.tensor_parallel[2]``."""
    if path[:1] == ("benchmark",) and len(path) > 1 and isinstance(path[1], int):
        table = document["benchmark"][path[1]]
        name = table.get("name") if isinstance(table, dict) else None
        head = f'[[benchmark]] "{name}"' if isinstance(name, str) and _BARE.fullmatch(name) else f"benchmark[{path[1]}]"
        return _arrow(head, path[2:])
    if path[:1] == ("profile",) and len(path) > 1:
        end = 4 if path[2:3] == ("benchmark",) and len(path) > 3 else 2  # noqa: PLR2004 - profile.NAME.benchmark.BENCH
        return _arrow(f"[{dotted(path[:end])}]", path[end:])
    return dotted(path)


def _arrow(head: str, rest: KeyPath) -> str:
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
    """One pydantic error in plain words; ``siblings`` are the keys valid beside an unknown one.

    A word may stand ``beside_numbers``, which are valid, too.
    """
    kind, context, found = error["type"], error.get("ctx", {}), error["input"]
    if kind == "missing":
        return "missing, and it is required"
    if kind == "extra_forbidden":
        return f"unknown key{valid_text(error['loc'][-1], siblings)}"
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        if (close := did_you_mean(found, words)) and len(words) > _MANY:
            return f"found {describe(found)}{close} `pybench schema` lists all"
        elsewhere = _ELSEWHERE if found in _ALL and {*words} & {*_ALL} else ""
        valid = f"{'a number or ' if beside_numbers else ''}{context['expected']}"
        return f"found {describe(found)}, valid: {valid}{elsewhere or did_you_mean(found, words)}"
    if kind in _KINDS:
        return f"found {describe(found)}, expected {_KINDS[kind]}{_ELSEWHERE if found in _ALL else ''}"
    if kind in {"greater_than_equal", "less_than_equal"}:
        limit = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
        return f"found {describe(found)}, must be {limit}"
    if kind == "string_pattern_mismatch":
        return f"found {describe(found)}; {_PATTERN}"
    if kind == "too_short":
        return "empty, needs at least one value"
    if kind == "too_long":
        return f"found {len(found)} values, at most {context['max_length']} are allowed"
    if kind == "union_tag_invalid":
        return f"workload: found {describe(context['tag'])}, valid: {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return "workload is missing, and it is required"
    return f"found {describe(found)}: {error['msg']}"


_ELSEWHERE = (
    f"; {ALL_GPUS!r} belongs in an axis of GPUs, such as axes.gpus or axes.data_parallel, {REST!r} in one such setting"
)
_ALL = (ALL_GPUS, REST)
_PATTERN = "a name is 1 to 64 of A-Z a-z 0-9 _ . - and begins with a letter, digit or _; text has no control characters"


KeyPath = tuple[str | int, ...]
KeyProblem = tuple[KeyPath, str]
"""Where in the document, and what is wrong there."""


def toml_lines(text: str) -> dict[KeyPath, int]:
    """Map key paths such as ``("benchmark", 0, "axes", "backend", 1)`` to 1-based lines.

    ``text`` must be valid TOML.
    """
    root = Parser(Language(tree_sitter_toml.language())).parse(text.encode()).root_node
    lines: dict[KeyPath, int] = {}
    array_lengths: dict[KeyPath, int] = {}
    for node in root.named_children:
        if node.type == "pair":
            _pair(node, (), lines)
        elif node.type in {"table", "table_array_element"}:
            _table(node, lines, array_lengths)
    return lines


def nearest_line(lines: dict[KeyPath, int], keys: KeyPath) -> int | None:
    """Line of ``keys``; for a missing key, of the closest table around it."""
    return next((lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines), None)


def _table(node: Node, lines: dict[KeyPath, int], array_lengths: dict[KeyPath, int]) -> None:
    header, *pairs = [child for child in node.named_children if child.type != "comment"]
    path: KeyPath = ()
    keys = _keys(header)
    for depth, key in enumerate(keys):
        path = (*path, key)
        lines.setdefault(path, _line(node))
        if node.type == "table_array_element" and depth == len(keys) - 1:
            array_lengths[path] = array_lengths.get(path, 0) + 1
        if path in array_lengths:
            path = (*path, array_lengths[path] - 1)
            lines.setdefault(path, _line(node))
    for pair in pairs:
        _pair(pair, path, lines)


def _pair(node: Node, path: KeyPath, lines: dict[KeyPath, int]) -> None:
    key, value = [child for child in node.named_children if child.type != "comment"]
    for part in _keys(key):
        path = (*path, part)
        lines.setdefault(path, _line(node))
    _value(value, path, lines)


def _value(node: Node, path: KeyPath, lines: dict[KeyPath, int]) -> None:
    children = [child for child in node.named_children if child.type != "comment"]
    if node.type == "array":
        for index, child in enumerate(children):
            lines[*path, index] = _line(child)
            _value(child, (*path, index), lines)
    elif node.type == "inline_table":
        for child in children:
            _pair(child, path, lines)


def _keys(node: Node) -> list[str]:
    """Parts of a bare, quoted or dotted key."""
    if node.type == "dotted_key":
        return [key for child in node.named_children for key in _keys(child)]
    text = (node.text or b"").decode()
    if node.type == "bare_key":
        return [text]
    return [next(iter(tomllib.loads(f"{text}=0")))]


def _line(node: Node) -> int:
    return node.start_point.row + 1
