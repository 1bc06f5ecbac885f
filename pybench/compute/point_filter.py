"""The expression of ``-k``: words, ``and``, ``or``, ``not`` and parentheses, matched against point ids."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pybench.model.errors import UsageError

Filter = Callable[[str], bool]

_TOKEN = re.compile(r"\s*(?:(?P<paren>[()])|(?P<word>[\w=.\-\[\],]+))")
_VALID = "valid are words of a point's id, and, or, not, parentheses; e.g. -k 'decode and not tensor_parallel=8'"
# Deeper than anyone writes, shallower than Python's recursion limit.
_MAX_DEPTH = 50


def parse_filter(text: str) -> Filter:
    """Turn an expression into a test of point ids; a word matches as a substring, in any letter case.

    Raises ``UsageError`` naming the column.
    """
    parser = _Parser(text, _tokens(text))
    accept = parser.either(0)
    if parser.peek().text:
        raise parser.refuse("'and' or 'or'")
    return accept


@dataclass(frozen=True)
class _Token:
    text: str
    column: int


def _tokens(text: str) -> list[_Token]:
    """Split into words and parentheses, with an empty token at the end."""
    tokens, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            column = position + len(text[position:]) - len(text[position:].lstrip())
            raise UsageError(f"-k: column {column + 1}: {text[column]!r} has no meaning here; {_VALID}")
        group = match.lastgroup or ""
        tokens.append(_Token(match[group], match.start(group) + 1))
        position = match.end()
    return [*tokens, _Token("", len(text) + 1)]


def _has(word: str) -> Filter:
    return lambda point_id: word in point_id.casefold()


class _Parser:
    """Recursive descent: ``either`` holds ``both``, ``both`` holds ``single``."""

    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0

    def peek(self) -> _Token:
        return self._tokens[self._next]

    def refuse(self, wanted: str) -> UsageError:
        token = self.peek()
        found = repr(token.text) if token.text else "the end"
        return UsageError(f"-k: column {token.column}: found {found}, expected {wanted}; {_VALID}")

    def either(self, depth: int) -> Filter:
        left = self.both(depth)
        while self._take("or"):
            left = _or(left, self.both(depth))
        return left

    def both(self, depth: int) -> Filter:
        left = self.single(depth)
        while self._take("and"):
            left = _and(left, self.single(depth))
        return left

    def single(self, depth: int) -> Filter:
        if depth > _MAX_DEPTH:
            raise self.refuse(f"at most {_MAX_DEPTH} levels of 'not' and parentheses")
        if self._take("not"):
            return _not(self.single(depth + 1))
        if self._take("("):
            inner = self.either(depth + 1)
            if not self._take(")"):
                raise self.refuse("')'")
            return inner
        if self.peek().text in {"", ")", "and", "or"}:
            raise self.refuse("a word, 'not' or '('")
        word = self.peek().text
        self._next += 1
        return _has(word.casefold())

    def _take(self, text: str) -> bool:
        if self.peek().text != text:
            return False
        self._next += 1
        return True


def _or(left: Filter, right: Filter) -> Filter:
    return lambda point_id: left(point_id) or right(point_id)


def _and(left: Filter, right: Filter) -> Filter:
    return lambda point_id: left(point_id) and right(point_id)


def _not(inner: Filter) -> Filter:
    return lambda point_id: not inner(point_id)
