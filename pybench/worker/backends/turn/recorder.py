"""The phases of a turn: when each began and ended on this rank, and what memory was in use at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pybench.model.wire import Span

Reading = Callable[[], int | None]


@dataclass(frozen=True)
class Meters:
    """What a rank can read of memory, in bytes; ``wait`` returns once its device is done.

    ``end_phase`` is called behind each phase, outside its time.
    """

    wait: Callable[[], None]
    device_bytes: Reading
    host_bytes: Reading
    end_phase: Callable[[], None]


class Recorder:
    """Phases begin at a barrier over all ranks, and end on each rank when its device is done."""

    def __init__(self, barrier: Callable[[], None], meters: Meters) -> None:
        self._barrier = barrier
        self._meters = meters
        self.spans: list[Span] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record one phase. One that raises leaves none."""
        self._barrier()
        start_ns = time.monotonic_ns()
        yield
        self._meters.wait()
        end_ns = time.monotonic_ns()
        self._barrier()  # a rank with nothing to do would read what the others still hold
        self.spans.append(
            Span(
                name=name,
                start_ns=start_ns,
                end_ns=end_ns,
                device_bytes=self._meters.device_bytes(),
                host_bytes=self._meters.host_bytes(),
            )
        )
        self._meters.end_phase()

    def seconds(self, name: str) -> float:
        """Length of all phases of a name on this rank so far."""
        return sum(span.end_ns - span.start_ns for span in self.spans if span.name == name) / 1e9
