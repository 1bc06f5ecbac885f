"""On which line each key and array element of a TOML text begins."""

from __future__ import annotations

import tomllib

import tree_sitter_toml
from tree_sitter import Language, Node, Parser

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
