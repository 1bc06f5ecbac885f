"""One line of a worker's event stream, checked for its form: keys, types, finite numbers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import SchemaValidator

from pybench.files.reader import object_reader
from pybench.model.wire import EVENT_KINDS, PROTOCOL_VERSION, Event, Failure
from pybench.model.workloads.rules import INTEGERS

# What a record keeps of a failure.
_MAX_MESSAGE = 2_000
_MAX_DETAIL = 64 * 1024
_MAX_SHOWN = 200


def decode_event(line: bytes | str) -> Event:
    """Read one line. Raises ``ValueError``, which names the field, when it is no event of this protocol."""
    try:
        kinds = _validator().validate_json(line)
    except ValidationError as error:
        raise ValueError(_refusal(line, _first(error))) from error
    given = [event for name in EVENT_KINDS if (event := getattr(kinds, name)) is not None]
    if len(given) != 1:
        raise ValueError(_refusal(line, f"{len(given)} events in one line"))
    only: Event = given[0]
    if name := _oversized(only):
        raise ValueError(_refusal(line, f"{name}: beyond 64 bits"))
    return _shortened(only) if isinstance(only, Failure) else only


@cache
def _validator() -> SchemaValidator:
    """Of an object with one event, by its kind."""
    return object_reader("event", [(name, kind | None, None) for name, kind in EVENT_KINDS.items()])


def _first(error: ValidationError) -> str:
    detail = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part)[:_MAX_SHOWN] for part in detail["loc"])
    return f"{place}: {detail['msg'][:_MAX_SHOWN]}" if place else str(detail["msg"])[:_MAX_SHOWN]


def _refusal(line: bytes | str, reason: str) -> str:
    shown = line[:_MAX_SHOWN]
    text = shown.decode(errors="replace") if isinstance(shown, bytes) else shown
    return f"not an event of protocol {PROTOCOL_VERSION}: {reason} in {text!r}"


def _oversized(value: Any, name: str = "") -> str | None:  # noqa: ANN401 - any field of an event
    """Name of an integer inside ``value`` that no 64 bits hold, if there is one: no clock and no count is as large."""
    if isinstance(value, int):
        return None if value in INTEGERS else name
    if is_dataclass(value) and not isinstance(value, type):
        inside = ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, tuple):
        inside = ((name, item) for item in value)
    else:
        return None
    return next((found for field, item in inside if (found := _oversized(item, field))), None)


def _shortened(failure: Failure) -> Failure:
    return replace(failure, message=failure.message[:_MAX_MESSAGE], detail=failure.detail[-_MAX_DETAIL:])
