"""JSON of our own files as our dataclasses; who wrote a file decides neither the memory nor the time it takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import make_dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Generic, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator, core_schema

from pybench.model.errors import RunFolderError
from pybench.model.workloads.settings import INTEGERS, LARGEST

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
        value = _DECODER.decode(data.decode())
    except _OutOfBoundsError:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    else:
        # A search over the text costs nothing beside looking at every value.
        if _MANY not in data.translate(_DIGITS) and _HALF.search(data) is None:
            return value
    try:
        place, problem = next(_out_of_bounds(value), ("", None))
    except RecursionError as error:
        raise ValueError(f"not JSON: {error}") from error
    if problem is not None:
        raise ValueError(f"{place}: {problem}")
    return value


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
            if isinstance(key, str) and _SURROGATE.search(key):
                yield ascii(where), _HALF_PROBLEM
            yield from _out_of_bounds(item, where)
    elif isinstance(value, str):
        if _SURROGATE.search(value):
            yield place, _HALF_PROBLEM
    elif (isinstance(value, float) and not -LARGEST <= value <= LARGEST) or (
        isinstance(value, int) and value not in INTEGERS
    ):
        yield place, f"{value!r:.40} is larger than any measurement, or no number"


_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF_PROBLEM = "holds half a character (a lone surrogate), which no text has"

_T = TypeVar("_T")
# Without it every element that does not fit is an error with its place: more than a kilobyte for two bytes of a file.
_FIRST: dict[str, Any] = {"fail_fast": True}
_AT_THE_FIRST: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("list", "tuple", "set", "frozenset"), _FIRST),
    # Older releases of pydantic refuse it there.
    "dict": _FIRST if "fail_fast" in core_schema.DictSchema.__annotations__ else {},
}
# A number may be written as text, which no search for large numbers finds.
_BOUNDED: dict[str, dict[str, Any]] = {
    **_AT_THE_FIRST,
    "int": {"ge": INTEGERS.start, "le": INTEGERS.stop - 1},
    "float": {"allow_inf_nan": False, "ge": -LARGEST, "le": LARGEST},
}
_NO_SCHEMA = frozenset(("cls", "default", "expected", "metadata", "serialization"))


class Reader(Generic[_T]):
    """Validates as pydantic's adapter of ``kind`` does, up to the first fault of a sequence or mapping.

    Numbers are held to bounds. The adapter is made at its first use, as that takes up to 0.1 s.
    """

    def __init__(self, kind: type[_T]) -> None:
        self.adapter = cache(lambda: TypeAdapter(kind))
        self._validator = cache(lambda: SchemaValidator(_with(_BOUNDED, self.adapter().core_schema)))

    def read(self, values: object) -> _T:
        """Of values that JSON gave. Raises ``ValidationError``."""
        return cast("_T", self._validator().validate_python(values))

    def read_of(self, where: str, values: object) -> _T:
        """Of values from the file ``where``. Raises ``RunFolderError``."""
        try:
            return self.read(values)
        except ValidationError as error:
            raise RunFolderError(f"{where}: {first_fault(error)}; {DAMAGED}") from error


def object_reader(name: str, fields: Sequence[tuple[Any, ...]]) -> SchemaValidator:
    """Validates an object with ``fields``, as ``make_dataclass`` takes them, up to the first fault of a sequence.

    Types are exact, numbers finite and other keys refused, also of dataclasses inside. The object is a dataclass: a
    model has a validator of its own, which pydantic would use in place of this one.
    """
    strict = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    kind = make_dataclass(name, fields, namespace={"__pydantic_config__": strict})
    return SchemaValidator(_with(_AT_THE_FIRST, TypeAdapter(kind).core_schema))


DAMAGED = "the file was edited or damaged; get it again"


def decode_versioned(where: str, data: bytes, newest: int) -> Any:  # noqa: ANN401 - any value
    """The value in a file of pybench. Raises ``RunFolderError`` unless it is JSON of version ``newest``."""
    try:
        values = decode_json(data)
    except ValueError as error:
        raise RunFolderError(f"{where}: {error}; {DAMAGED}") from error
    check_version(where, values, newest)
    return values


def check_version(where: str, values: object, newest: int) -> None:
    """Refuse what another version of pybench wrote. Raises ``RunFolderError``."""
    version = values.get("version") if isinstance(values, dict) else None
    if not isinstance(version, int):
        raise RunFolderError(f"{where}: no version; not written by pybench")
    if version > newest:
        raise RunFolderError(f"{where}: from a newer pybench (version {version}, this one reads {newest}); update")
    if version < newest:
        remedy = "read it with the pybench that wrote it, or run it again"
        raise RunFolderError(f"{where}: version {version} is too old for this pybench (reads {newest}); {remedy}")


def first_fault(error: ValidationError) -> str:
    """Field and reason of the first value that does not fit."""
    detail = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in detail['loc']) or 'file'}: {detail['msg']}"


def _with(added: Mapping[str, dict[str, Any]], schema: Any) -> Any:  # noqa: ANN401 - any part of a schema
    """A schema with what ``added`` has for each kind in it."""
    if isinstance(schema, list | tuple):
        return type(schema)(_with(added, part) for part in schema)
    if not isinstance(schema, dict):
        return schema
    parts = {key: part if key in _NO_SCHEMA else _with(added, part) for key, part in schema.items()}
    kind = parts.get("type")
    return {**added.get(kind, {}), **parts} if isinstance(kind, str) else parts


# Their nanoseconds since 1970 are positive, and fit 63 bits.
_YEARS = range(1970, 2262)


def utc_time(text: str) -> datetime:
    """The time in UTC, as which one without an offset counts. Raises ``ValueError``, which shows the text."""
    try:
        parsed = datetime.fromisoformat(text)
        moved = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text[:40]!r} is no ISO 8601 time") from error
    if moved.year not in _YEARS:
        raise ValueError(f"{text[:40]!r} is a time that no run was at")
    return moved
