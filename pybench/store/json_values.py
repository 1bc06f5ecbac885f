"""JSON of our own files as values, without numbers that no measurement has and that computing would fail on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pybench.model.limits import INTEGERS, LARGEST

# Any 64 bits need at most 19 digits. Every digit becomes a 0, anything else a space: finding is faster than a pattern.
_DIGITS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
_MANY = b"0" * 19


def decode_json(data: bytes) -> Any:  # noqa: ANN401 - any value
    """The value. Raises ``ValueError`` for what is no JSON, and for a number out of bounds, with its key."""
    try:
        found = _DECODER.decode(data.decode())
    except _OutOfBoundsError:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    else:
        # A search over the text costs nothing beside looking at every integer.
        if _MANY not in data.translate(_DIGITS):
            return found
    for place, value in _out_of_bounds(found):
        raise ValueError(f"{place}: {value!r:.40} is larger than any measurement, or no number")
    return found


class _OutOfBoundsError(Exception):
    """A number that is not finite, or that no measurement reaches."""


def _bounded(text: str) -> float:
    value = float(text)
    if not -LARGEST <= value <= LARGEST:
        raise _OutOfBoundsError
    return value


_DECODER = json.JSONDecoder(parse_float=_bounded, parse_constant=_bounded)


def _out_of_bounds(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _out_of_bounds(item, f"{place}.{key}" if place else str(key))
    elif (isinstance(value, float) and not -LARGEST <= value <= LARGEST) or (
        isinstance(value, int) and value not in INTEGERS
    ):
        yield place, value
