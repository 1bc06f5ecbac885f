"""The stream a rank reports on."""

from __future__ import annotations

from pathlib import Path

from pybench.model.wire import Event, encode_event, events_file


class EventStream:
    """Appends one line for each event, each with one write, so that a killed rank leaves whole lines."""

    def __init__(self, exchange: Path, rank: int) -> None:
        self.path = exchange / events_file(rank)
        self._file = self.path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file; what was written is already in it."""
        self._file.close()

    def write(self, event: Event) -> None:
        """Append one event."""
        self._file.write((encode_event(event) + "\n").encode())
