"""Regular expressions take time that grows with their text: no repetition inside another has two ways to match."""

from __future__ import annotations

import ast
import re
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pybench

PACKAGE = Path(pybench.__file__).parent
LETTERS = frozenset(chr(code) for code in range(128))
FUNCTIONS = frozenset(("compile", "search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split"))
REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)


def patterns() -> Iterator[tuple[str, str]]:
    """Place and text of every pattern that is written out in the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            module, first = node.func.value, node.args[0]
            if node.func.attr in FUNCTIONS and isinstance(module, ast.Name) and module.id == "re":
                found = first.value if isinstance(first, ast.Constant) else None
                text = found.decode("latin-1") if isinstance(found, bytes) else found
                if isinstance(text, str):
                    yield f"{path.relative_to(PACKAGE)}:{node.lineno}", text


def letters_of(item: Any) -> frozenset[str]:
    """The ASCII letters that one item of a parsed pattern may match first or only; all where that is not plain."""
    kind, value = item
    if kind in REPEATS:
        return frozenset().union(*map(letters_of, flat(value[2])))
    if kind is sre.LITERAL:
        return frozenset(chr(value))
    if kind is sre.NOT_LITERAL:
        return LETTERS - {chr(value)}
    if kind is sre.IN:
        tree = parser.SubPattern(parser.State(), [item])
        written = re._compiler.compile(tree)  # type: ignore[attr-defined]
        return frozenset(letter for letter in LETTERS if written.match(letter))
    return LETTERS


def is_ambiguous(body: Any) -> bool:
    """Whether what is repeated may be split in two ways.

    It holds a repetition, and no letter beside it that the repetition does not match: ``(a+)+``, ``(a+b?)+``.
    """
    items = list(flat(body))
    for place, (kind, value) in enumerate(items):
        if kind in REPEATS and value[1] is sre.MAXREPEAT:
            inner = letters_of((kind, value))
            beside = [item for other, item in enumerate(items) if other != place and is_always_there(item)]
            if not any(letters_of(item).isdisjoint(inner) for item in beside):
                return True
    return False


def flat(body: Any) -> Iterator[Any]:
    """The items of a body, those of groups among them."""
    for kind, value in body:
        if kind is sre.SUBPATTERN:
            yield from flat(value[3])
        else:
            yield kind, value


def is_always_there(item: Any) -> bool:
    kind, value = item
    return kind not in REPEATS or value[0] > 0


def nested(tree: Any) -> Iterator[Any]:
    """Bodies of all unlimited repetitions."""
    for kind, value in tree:
        if kind in REPEATS:
            if value[1] is sre.MAXREPEAT:
                yield value[2]
            yield from nested(value[2])
        elif kind is sre.SUBPATTERN:
            yield from nested(value[3])
        elif kind is sre.BRANCH:
            for branch in value[1]:
                yield from nested(branch)


def is_exponential(pattern: str) -> bool:
    return any(is_ambiguous(body) for body in nested(parser.parse(pattern)))


@pytest.mark.parametrize("pattern", [r"(a+)+", r"(?:\w+\s?)*x", r"(\d+)*", r"((a*)b?)*c"])
def test_known_traps_are_found(pattern: str) -> None:
    assert is_exponential(pattern)


@pytest.mark.parametrize("pattern", [r"(a+b)+", r"(?:\.\d+)+", r"a+b+", r"(/[a-z]+)+", r"[a-z]*"])
def test_plain_ones_are_not(pattern: str) -> None:
    assert not is_exponential(pattern)


def test_no_expression_of_the_package_is_a_trap() -> None:
    found = dict(patterns())
    assert len(found) > 30
    assert {place: text for place, text in found.items() if is_exponential(text)} == {}
