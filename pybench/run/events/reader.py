"""Follows the event files of a session while the worker writes them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import SchemaValidator

from pybench.core.joint_step import moved
from pybench.files.reader import object_reader
from pybench.model.errors import is_machine_fault
from pybench.model.record import RankReport
from pybench.model.wire import (
    EVENT_KINDS,
    PROTOCOL_VERSION,
    Event,
    Failure,
    Header,
    Metric,
    Phase,
    Result,
    Step,
    events_file,
)
from pybench.model.workloads.settings import INTEGERS


@dataclass
class RankLog:
    """Events of one rank at one point so far. ``latest_ns`` is the latest time in it."""

    header: Header | None = None
    phase: Phase | None = None
    first_warmup_ns: int | None = None
    steps: list[Step] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    result: Result | None = None
    failure: Failure | None = None
    num_steps: int = 0
    latest_ns: int = 0

    def add(self, event: Event) -> None:
        """Take one event."""
        match event:
            case Header():
                self.header = event
            case Phase():
                self.phase = event
                self.latest_ns = event.start_ns
                if event.name == "warmup":
                    self.first_warmup_ns = event.start_ns
            case Step():
                self.num_steps += 1
                self.latest_ns = event.end_ns
                if event.loss is not None:
                    self.losses.append(event.loss)
                if event.phase == "measure":
                    self.steps.append(event)
            case Metric():
                self.metrics.append(event)
            case Result():
                self.result = event
            case Failure():
                self.failure = event

    @property
    def reached(self) -> str:
        """How far the rank came, in words."""
        if self.phase is None:
            return "before its first event"
        return f"last seen in phase {self.phase.name} after {len(self.steps)} measured steps"

    def report(self) -> RankReport | None:
        """The rank's part of a record; ``None`` when it never introduced itself."""
        if self.header is None:
            return None
        return RankReport(
            header=self.header,
            steps=tuple(self.steps),
            metrics=tuple(self.metrics),
            warmup_steps=self.result.warmup_steps if self.result else 0,
            steady=self.result.steady if self.result else None,
            losses=tuple(self.losses),
        )


Check = Callable[[int, RankLog, Event, int], None]
"""Raises ``ValueError`` for an event of a rank, with what it reported before, that was read at a time in ns."""


def _not_begun(rank: int, _log: RankLog, event: Event, _now_ns: int) -> None:
    """A point that the host has not yet begun: a rank may fail on the way to it, and nothing else."""
    if isinstance(event, Failure):
        return
    raise ValueError(f"rank {rank}: {type(event).__name__.lower()}: comes before the host let the rank go on")


class EventReader:
    """Reads whole new lines of every rank's file at each :meth:`poll`.

    ``points`` holds, for each point of the session in its order, what every rank reported of it. A rank whose host's
    clock is ``ahead_ns`` of this one's has its times moved back by that; without any, all have one clock.
    """

    def __init__(self, exchange: Path, num_ranks: int, num_points: int, ahead_ns: Sequence[int] = ()) -> None:
        self._ahead_ns = ahead_ns or [0] * num_ranks
        self._files = [EventFile(exchange / events_file(rank)) for rank in range(num_ranks)]
        self._places = [0] * num_ranks
        self._checks: list[Check] = [_not_begun] * num_points
        self.points = [[RankLog() for _ in range(num_ranks)] for _ in range(num_points)]

    def begin(self, place: int, check: Check) -> None:
        """Take events of the point ``place`` from now on, if they pass ``check``."""
        self._checks[place] = check

    def poll(self) -> list[tuple[int, Event]]:
        """Events since the last call, as (rank, event). Raises ``ValueError`` on the first that can't be taken."""
        news: list[tuple[int, Event]] = []
        for rank, file in enumerate(self._files):
            for line in file.new_lines():
                event = moved(decode_event(line), -self._ahead_ns[rank])
                # A result is the last word on a point that another one follows.
                here = self.points[self._places[rank]][rank]
                if here.result is not None and self._places[rank] + 1 < len(self.points):
                    self._places[rank] += 1
                place = self._places[rank]
                log = self.points[place][rank]
                self._checks[place](rank, log, event, time.monotonic_ns())
                log.add(event)
                news.append((rank, event))
        return news


# A step of 2^17 requests takes 20 MiB.
MAX_LINE_BYTES = 32 * 2**20
# Far more than any session's steps; a sparse file is as large as it likes.
MAX_FILE_BYTES = 2**30
_CHUNK_BYTES = 2**20


class EventFile:
    """Gives whole new lines at each call of :meth:`new_lines`; the last one may still be incomplete."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._begun = bytearray()

    def new_lines(self) -> Iterator[bytes]:
        """Lines since the last call. Raises ``ValueError`` when it can't be read, or is larger than any should be."""
        # A container may be hostile: follow no link to another file and wait for no pipe.
        safe = os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            with open(self._path, "rb", buffering=0, opener=lambda path, flags: os.open(path, flags | safe)) as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise ValueError(f"{self._path.name} is no regular file")
                stream.seek(self._offset)
                while chunk := stream.read(_CHUNK_BYTES):
                    yield from self._lines(chunk)
        except FileNotFoundError:
            return
        except OSError as error:
            if is_machine_fault(error):
                raise
            raise ValueError(f"{self._path.name} can't be read: {error.strerror}") from error

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        self._offset += len(chunk)
        if self._offset > MAX_FILE_BYTES:
            raise ValueError(f"{self._path.name} is larger than {MAX_FILE_BYTES} bytes")
        *ended, begun = chunk.split(b"\n")
        for line in ended:
            self._begun += line
            whole = bytes(self._begun)
            self._begun.clear()
            yield whole
        self._begun += begun
        if len(self._begun) > MAX_LINE_BYTES:
            raise ValueError(f"{self._path.name} has a line of more than {MAX_LINE_BYTES} bytes")


# Limits of a failure in a record.
_MAX_MESSAGE = 2_000
_MAX_DETAIL = 64 * 1024
_MAX_SHOWN = 200


def decode_event(line: bytes | str) -> Event:
    """Read one line. Raises ``ValueError``, which names the field, when it is no event of this protocol."""
    try:
        kinds = _validator().validate_json(line)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part)[:_MAX_SHOWN] for part in detail["loc"])
        reason = str(detail["msg"])[:_MAX_SHOWN]
        raise ValueError(_refusal(line, f"{place}: {reason}" if place else reason)) from error
    given = [event for name in EVENT_KINDS if (event := getattr(kinds, name)) is not None]
    if len(given) != 1:
        raise ValueError(_refusal(line, f"{len(given)} events in one line"))
    only: Event = given[0]
    if name := _oversized(only):
        raise ValueError(_refusal(line, f"{name}: beyond 64 bits"))
    if isinstance(only, Failure):
        return replace(only, message=only.message[:_MAX_MESSAGE], detail=only.detail[-_MAX_DETAIL:])
    return only


@cache
def _validator() -> SchemaValidator:
    """Of an object with one event, by its kind."""
    return object_reader("event", [(name, kind | None, None) for name, kind in EVENT_KINDS.items()])


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
    return next((key for field, item in inside if (key := _oversized(item, field))), None)
