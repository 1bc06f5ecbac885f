"""Messages between a worker and its host, as files of a folder: orders to the worker, events of each rank."""

from __future__ import annotations

import time
from pathlib import Path

from pybench.model.wire import (
    ORDERS_FILE,
    Event,
    Phase,
    Step,
    WorkOrder,
    encode_event,
    events_file,
    go_file,
)

_POLL_S = 0.01
# A host that sends nothing for so long is gone; between two orders it has a second's work.
_PATIENCE_S = 600.0


def read_orders(exchange: Path) -> tuple[WorkOrder, ...]:
    """All orders, the first one first. Raises ``ValueError``, ``KeyError`` or ``TypeError`` on anything else."""
    lines = (exchange / ORDERS_FILE).read_text(encoding="utf-8").splitlines()
    return tuple(WorkOrder.from_json(line) for line in lines)


def wait_for_go(exchange: Path, place: int) -> None:
    """Return once the host has kept the previous order's results. Raises ``TimeoutError`` when it sends nothing."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (exchange / go_file(place)).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the host did not release order {place} within {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)


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
