"""JSON of our own files as values, without those that no measurement has and that computing or reporting fails on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pybench.model.workloads.rules import INTEGERS, LARGEST

MAX_VALUES = 2**22
"""Objects, lists and what is in them, of one document: far more than the largest plan or attempt has."""
# Any 64 bits need at most 19 digits. Every digit becomes a 0, anything else a space: finding is faster than a pattern.
_DIGITS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_MANY = b"0" * 19
# JSON's escape for half of a character beyond 16 bits; text has both halves.
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def decode_json(data: bytes) -> Any:  # noqa: ANN401 - any value
    """The value. Raises ``ValueError`` for invalid JSON, and for a number or text out of bounds, with its key."""
    # An empty list takes three bytes of a file, and eighty in memory.
    if has_too_many(data):
        raise ValueError(f"more than {MAX_VALUES} values, which no file of pybench has")
    try:
        found = _DECODER.decode(data.decode())
    except _OutOfBoundsError:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    else:
        # A search over the text costs nothing beside looking at every value.
        if _MANY not in data.translate(_DIGITS) and _HALF.search(data) is None:
            return found
    try:
        place, problem = next(_out_of_bounds(found), ("", None))
    except RecursionError as error:
        raise ValueError(f"not JSON: {error}") from error
    if problem is not None:
        raise ValueError(f"{place}: {problem}")
    return found


def has_too_many(data: bytes) -> bool:
    """Whether JSON may have more than ``MAX_VALUES``, by its brackets and commas."""
    return len(data) > MAX_VALUES and sum(map(data.count, (b"[", b"{", b","))) > MAX_VALUES


class _OutOfBoundsError(Exception):
    """A number that is not finite, or that no measurement reaches."""


def _bounded(text: str) -> float:
    value = float(text)
    if not -LARGEST <= value <= LARGEST:
        raise _OutOfBoundsError
    return value


_DECODER = json.JSONDecoder(parse_float=_bounded, parse_constant=_bounded)


def _out_of_bounds(value: object, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            where = f"{place}.{key}" if place else str(key)
            if isinstance(key, str) and not _is_text(key):
                yield ascii(where), _HALF_PROBLEM
            yield from _out_of_bounds(item, where)
    elif isinstance(value, str):
        if not _is_text(value):
            yield place, _HALF_PROBLEM
    elif (isinstance(value, float) and not -LARGEST <= value <= LARGEST) or (
        isinstance(value, int) and value not in INTEGERS
    ):
        yield place, f"{value!r:.40} is larger than any measurement, or no number"


_HALF_PROBLEM = "holds half a character (a lone surrogate), which no text has"


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
