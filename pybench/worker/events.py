"""The stream a rank reports on."""

from __future__ import annotations

import time
from pathlib import Path

from pybench.model.wire import Event, Phase, Step, encode_event, events_file

_KIND_OF_STEP = {"warmup": "warm-up", "measure": "measured"}


class EventStream:
    """Appends one line for each event, each with one write, so that a killed rank leaves whole lines.

    ``at`` is what the rank does since the last event, which was written at ``last_ns`` of CLOCK_MONOTONIC.
    """

    def __init__(self, exchange: Path, rank: int) -> None:
        self.path = exchange / events_file(rank)
        self._file = self.path.open("ab", buffering=0)
        self.at = "before the first event"
        self.last_ns = time.monotonic_ns()

    def close(self) -> None:
        """Close the file; what was written is already in it."""
        self._file.close()

    def write(self, event: Event) -> None:
        """Append one event, and note where it leaves the rank."""
        self._file.write((encode_event(event) + "\n").encode())
        self.last_ns = time.monotonic_ns()
        if isinstance(event, Phase):
            self.at = f"in phase {event.name}"
        elif isinstance(event, Step):
            self.at = f"in {_KIND_OF_STEP[event.phase]} step {event.index + 1}"
