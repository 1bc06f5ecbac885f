"""Times in which this process was stopped by a busy machine; driver calls in them took longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

Span = tuple[int, int]
"""From and to, on CLOCK_MONOTONIC, in ns."""

_PAUSE_S = 0.02
_SHORTEST_NS = 200_000_000


@contextmanager
def standstills() -> Iterator[list[Span]]:
    """The spans within it in which this process did not run, each once it is over."""
    found: list[Span] = []
    over = threading.Event()

    def watch() -> None:
        before_ns, is_over = time.monotonic_ns(), False
        while not is_over:
            is_over = over.wait(_PAUSE_S)
            now_ns = time.monotonic_ns()
            if now_ns - before_ns > _SHORTEST_NS:
                found.append((before_ns, now_ns))
            before_ns = now_ns

    thread = threading.Thread(target=watch, daemon=True, name="standstills")
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def apart_from(stood_still: Sequence[Span], span: Span) -> int:
    """Length of a span in ns, minus the time in which the process was stopped."""
    start_ns, end_ns = span
    overlaps = (min(end_ns, to_ns) - max(start_ns, from_ns) for from_ns, to_ns in stood_still)
    return end_ns - start_ns - sum(overlap for overlap in overlaps if overlap > 0)
