"""Clocks of two hosts, joined by messages to and fro."""

from __future__ import annotations

import random

import pytest

from pybench.core.joint_step import moved
from pybench.model.machine import CLOCK_LIMIT_NS, HostClock, RoundTrip, clock_of
from pybench.model.wire import Phase, RequestTimes, Result, Span, Step, Work


def test_the_offset_lies_where_all_round_trips_agree() -> None:
    """Slow on the way there, then slow on the way back: together they leave 10 ns."""
    slow_there = RoundTrip(sent_ns=0, there_ns=1100, back_ns=110)  # offset in 990..1100
    slow_back = RoundTrip(sent_ns=1000, there_ns=2010, back_ns=1200)  # offset in 810..1010
    assert clock_of([slow_there, slow_back]) == HostClock(offset_ns=1000, bound_ns=10)


@pytest.mark.parametrize("offset_ns", [-(10**15), 0, 3_600_000_000_000])
def test_the_truth_is_within_the_bound_whatever_the_ways_take(offset_ns: int) -> None:
    """Ways that take 20 us and more, one direction three times the other, in any mixture."""
    for seed in range(200):
        draw = random.Random(seed)
        trips, now_ns = [], 0
        for _ in range(30):
            there_ns, back_ns = 20_000 + int(draw.expovariate(1e-5)), 60_000 + int(draw.expovariate(1e-5))
            trips.append(RoundTrip(now_ns, now_ns + there_ns + offset_ns, now_ns + there_ns + back_ns))
            now_ns += 200_000
        found = clock_of(trips)
        assert abs(found.offset_ns - offset_ns) <= found.bound_ns < CLOCK_LIMIT_NS


def test_clocks_that_cannot_be_joined() -> None:
    """Nothing came back, or one clock jumped in between."""
    with pytest.raises(ValueError, match="no message"):
        clock_of([])
    with pytest.raises(ValueError, match="jumped"):
        clock_of([RoundTrip(0, 1005, 10), RoundTrip(100, 5105, 110)])


def test_drift_widens_the_bound() -> None:
    """Measured before and after: 400 ns apart, known to 50 then; a bound over 1 ms is not close."""
    before, after = HostClock(offset_ns=1000, bound_ns=30), HostClock(offset_ns=600, bound_ns=50)
    assert before.over_time(after) == HostClock(offset_ns=1000, bound_ns=450)
    assert before.over_time(HostClock(offset_ns=1000, bound_ns=5)).bound_ns == 30
    assert HostClock(bound_ns=CLOCK_LIMIT_NS).is_close
    assert not HostClock(bound_ns=CLOCK_LIMIT_NS + 1).is_close


def test_every_time_of_an_event_moves() -> None:
    """An event without a time does not change."""
    step = Step(
        index=0,
        phase="measure",
        start_ns=10,
        end_ns=20,
        work=Work(),
        token_end_ns=(12, 14),
        requests=(RequestTimes(arrival_ns=10, first_token_ns=11, last_token_ns=12, prompt_tokens=1, output_tokens=1),),
        spans=(Span(name="a", start_ns=11, end_ns=19),),
    )
    later = moved(step, 100)
    assert isinstance(later, Step)
    assert (later.start_ns, later.end_ns, later.token_end_ns) == (110, 120, (112, 114))
    assert (later.requests[0].arrival_ns, later.requests[0].last_token_ns) == (110, 112)
    assert (later.spans[0].start_ns, later.spans[0].end_ns) == (111, 119)
    assert moved(later, -100) == step
    assert moved(Phase(name="measure", start_ns=1), 2) == Phase(name="measure", start_ns=3)
    assert moved(Result(warmup_steps=1, steady=True), 5) == Result(warmup_steps=1, steady=True)
