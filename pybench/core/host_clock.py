"""Clocks of two hosts joined by round trips of messages between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pybench.model.host import HostClock
from pybench.model.wire import Event, Phase, Step


@dataclass(frozen=True)
class RoundTrip:
    """A message sent at ``sent_ns`` and answered by ``back_ns``, here; at ``there_ns`` it was read on the other host.

    All in ns of CLOCK_MONOTONIC, each host's own.
    """

    sent_ns: int
    there_ns: int
    back_ns: int


def clock_of(trips: Sequence[RoundTrip]) -> HostClock:
    """The other host's clock less this one's.

    Each answer came between the two times of its message here, so the offset is within the intersection of all trips'
    intervals (Cristian, "Probabilistic clock synchronization", 1989). Raises ``ValueError`` without a trip, or where no
    offset fits all of them: a clock jumped.
    """
    if not trips:
        raise ValueError("no message came back")
    low_ns = max(trip.there_ns - trip.back_ns for trip in trips)
    high_ns = min(trip.there_ns - trip.sent_ns for trip in trips)
    if low_ns > high_ns:
        raise ValueError("one of the two clocks jumped between messages")
    offset_ns = (low_ns + high_ns) // 2
    return HostClock(offset_ns=offset_ns, bound_ns=high_ns - offset_ns)


def over_time(before: HostClock, after: HostClock) -> HostClock:
    """The clock as it was measured before a while, with a bound that holds all through it: clocks drift."""
    drift_ns = abs(after.offset_ns - before.offset_ns)
    return replace(before, bound_ns=max(before.bound_ns, drift_ns + after.bound_ns))


def moved(event: Event, by_ns: int) -> Event:
    """An event with its times ``by_ns`` later."""
    if by_ns == 0:
        return event
    if isinstance(event, Phase):
        return replace(event, start_ns=event.start_ns + by_ns)
    return moved_step(event, by_ns) if isinstance(event, Step) else event


def moved_step(step: Step, by_ns: int) -> Step:
    """A step with its times ``by_ns`` later."""
    return replace(
        step,
        start_ns=step.start_ns + by_ns,
        end_ns=step.end_ns + by_ns,
        token_end_ns=tuple(end_ns + by_ns for end_ns in step.token_end_ns),
        requests=tuple(
            replace(
                request,
                arrival_ns=request.arrival_ns + by_ns,
                first_token_ns=request.first_token_ns + by_ns,
                last_token_ns=request.last_token_ns + by_ns,
            )
            for request in step.requests
        ),
        spans=tuple(replace(span, start_ns=span.start_ns + by_ns, end_ns=span.end_ns + by_ns) for span in step.spans),
    )
