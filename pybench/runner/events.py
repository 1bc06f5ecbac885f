"""Follows the event files of a session while the worker writes them."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from pybench.model.record import RankReport
from pybench.model.wire import Event, Failure, Header, Metric, Phase, Result, Step, decode_event, events_file


@dataclass
class RankLog:
    """What one rank has said of one point so far."""

    header: Header | None = None
    phase: Phase | None = None
    first_warmup_ns: int | None = None
    steps: list[Step] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    result: Result | None = None
    failure: Failure | None = None

    def add(self, event: Event) -> None:
        """Take one event."""
        match event:
            case Header():
                self.header = event
            case Phase():
                self.phase = event
                if event.name == "warmup":
                    self.first_warmup_ns = event.start_ns
            case Step():
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


class EventReader:
    """Reads whole new lines of every rank's file at each :meth:`poll`.

    ``points`` holds, for each point of the session in its order, what every rank said of it.
    """

    def __init__(self, exchange: Path, num_ranks: int, num_points: int) -> None:
        self._paths = [exchange / events_file(rank) for rank in range(num_ranks)]
        self._offsets = [0] * num_ranks
        self._places = [0] * num_ranks
        self.points = [[RankLog() for _ in range(num_ranks)] for _ in range(num_points)]

    def poll(self) -> list[tuple[int, Event]]:
        """Events since the last call, as (rank, event). Raises ``ValueError`` on a line that is no event."""
        news: list[tuple[int, Event]] = []
        for rank, path in enumerate(self._paths):
            for line in self._new_lines(rank, path):
                event = decode_event(line)
                self._log(rank).add(event)
                news.append((rank, event))
        return news

    def _log(self, rank: int) -> RankLog:
        """Of the point that the rank is at: a result is the last word on a point that another one follows."""
        here = self.points[self._places[rank]][rank]
        if here.result is not None and self._places[rank] + 1 < len(self.points):
            self._places[rank] += 1
        return self.points[self._places[rank]][rank]

    def _new_lines(self, rank: int, path: Path) -> list[str]:
        try:
            with open(path, "rb", opener=_warily) as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    raise ValueError(f"{path.name} is no regular file")
                stream.seek(self._offsets[rank])
                data = stream.read()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ValueError(f"{path.name} can't be read: {error.strerror}") from error
        whole = data[: data.rfind(b"\n") + 1]  # the last line may still be in the writing
        self._offsets[rank] += len(whole)
        return whole.decode(errors="replace").splitlines()


def _warily(path: str | os.PathLike[str], flags: int) -> int:
    """Follow no link to another file and wait for no pipe: what runs in a container may be hostile."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
