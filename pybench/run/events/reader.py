"""Follows the event files of a session while the worker writes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pybench.core.formulas.joint_step import moved
from pybench.model.record import RankReport
from pybench.model.wire import Event, Failure, Header, Metric, Phase, Result, Step, events_file
from pybench.run.events.file import EventFile
from pybench.run.events.line import decode_event


@dataclass
class RankLog:
    """What one rank has reported of one point so far. ``latest_ns`` is the latest time in it."""

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

    def report(self) -> RankReport | None:
        """What a record keeps of the rank; ``None`` when it never introduced itself."""
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
                place = self._place(rank)
                log = self.points[place][rank]
                self._checks[place](rank, log, event, time.monotonic_ns())
                log.add(event)
                news.append((rank, event))
        return news

    def _place(self, rank: int) -> int:
        """Of the point that the rank is at: a result is the last word on a point that another one follows."""
        here = self.points[self._places[rank]][rank]
        if here.result is not None and self._places[rank] + 1 < len(self.points):
            self._places[rank] += 1
        return self._places[rank]
