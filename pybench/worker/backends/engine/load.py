"""Send requests to an engine as they come, and gather their times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from statistics import fmean
from typing import TypeVar

from pybench.model.percentiles import percentiles
from pybench.model.workloads.latency import PERCENTILES, percentile_name
from pybench.worker.backends.engine.requests import Request

Outcome = TypeVar("Outcome")
Submit = Callable[[Request, int], Awaitable[Outcome]]
"""Sends a request that arrived at a CLOCK_MONOTONIC time in ns, and waits for its end."""


async def drive(requests: Sequence[Request], concurrency: int | None, submit: Submit[Outcome]) -> list[Outcome]:
    """Send every request and wait for all.

    Open loop without ``concurrency``: each is sent at its own moment whatever became of the others, and arrives then,
    also where sending was late. Closed loop with it: so many are in flight, and the next arrives when one ends.
    """
    start_ns = time.monotonic_ns()
    if concurrency is None:
        return list(await asyncio.gather(*(_at_its_moment(request, start_ns, submit) for request in requests)))
    waiting = iter(requests)
    lanes = (_one_after_another(waiting, submit) for _ in range(min(concurrency, len(requests))))
    return [times for lane in await asyncio.gather(*lanes) for times in lane]


async def _at_its_moment(request: Request, start_ns: int, submit: Submit[Outcome]) -> Outcome:
    arrival_ns = start_ns + round(request.arrival_s * 1e9)
    delay_s = (arrival_ns - time.monotonic_ns()) / 1e9
    if delay_s > 0:
        await asyncio.sleep(delay_s)
    return await submit(request, arrival_ns)


async def _one_after_another(waiting: Iterator[Request], submit: Submit[Outcome]) -> list[Outcome]:
    return [await submit(request, time.monotonic_ns()) for request in waiting]


def gap_values(gaps_s: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles, by the names of their metrics; empty without a gap."""
    if not gaps_s:
        return {}
    ordered = sorted(gaps_s)
    found_s = zip(PERCENTILES, percentiles(ordered, PERCENTILES), strict=True)
    return {"itl_s": fmean(ordered), **{percentile_name("itl", percent): value for percent, value in found_s}}
