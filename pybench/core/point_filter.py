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
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            column = position + len(text[position:]) - len(text[position:].lstrip())
            raise UsageError(f"-k: column {column + 1}: {text[column]!r} has no meaning here; {_VALID}")
        group = match.lastgroup or ""
        tokens.append(_Token(match[group], match.start(group) + 1))
        position = match.end()
    return [*tokens, _Token("", len(text) + 1)]


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
        parts = [self.both(depth)]
        while self._take("or"):
            parts.append(self.both(depth))
        return lambda point_id: any(part(point_id) for part in parts)

    def both(self, depth: int) -> Filter:
        parts = [self.single(depth)]
        while self._take("and"):
            parts.append(self.single(depth))
        return lambda point_id: all(part(point_id) for part in parts)

    def single(self, depth: int) -> Filter:
        if depth > _MAX_DEPTH:
            raise self.refuse(f"at most {_MAX_DEPTH} levels of 'not' and parentheses")
        if self._take("not"):
            inner = self.single(depth + 1)
            return lambda point_id: not inner(point_id)
        if self._take("("):
            inner = self.either(depth + 1)
            if not self._take(")"):
                raise self.refuse("')'")
            return inner
        if self.peek().text in {"", ")", "and", "or"}:
            raise self.refuse("a word, 'not' or '('")
        word = self.peek().text.casefold()
        self._next += 1
        return lambda point_id: word in point_id.casefold()

    def _take(self, text: str) -> bool:
        if self.peek().text != text:
            return False
        self._next += 1
        return True
