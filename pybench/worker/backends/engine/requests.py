"""The requests of a step, and how they are sent: lengths, tokens and arrivals, the same for any number of replicas."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

from pybench.model.wire import RequestTimes, Work
from pybench.model.workloads.generate import Generate, drawn_lengths
from pybench.model.workloads.latency import PERCENTILES, percentile_name, percentiles
from pybench.worker.seeds import sample_seed


@dataclass(frozen=True)
class Request:
    """One request: its prompt's token ids, tokens to decode, and when after the step's start it comes, in s."""

    index: int
    prompt: list[int]
    output_tokens: int
    arrival_s: float


def draw_requests(settings: Generate, vocab_size: int, replica: int) -> tuple[Request, ...]:
    """The share of replica ``replica`` in the step's requests, every ``data_parallel``-th of them.

    Tokens are evenly distributed. The first ``shared_prefix_tokens`` are the same in every prompt.
    """
    shared = _shared_prefix(settings, vocab_size)
    return tuple(
        Request(
            drawn.index,
            shared + _tokens(settings.seed, drawn.index, vocab_size, drawn.prompt_tokens)[len(shared) :],
            drawn.output_tokens,
            drawn.arrival_s,
        )
        for drawn in drawn_lengths(settings, replica)
    )


def work_of(requests: Sequence[RequestTimes]) -> Work:
    """Work of a step that finished these requests."""
    return Work(
        prompt_tokens=sum(request.prompt_tokens for request in requests),
        output_tokens=sum(request.output_tokens for request in requests),
        samples=len(requests),
    )


def own_concurrency(settings: Generate) -> int | None:
    """Requests that one replica keeps in flight, ``None`` where their number is not held."""
    return None if settings.concurrency is None else settings.concurrency // settings.data_parallel


def wanted_at_a_time(settings: Generate, num_requests: int) -> int | None:
    """Number of a replica's requests that run at a time; ``None`` where they come at random."""
    if settings.request_rate_per_s is not None:
        return None
    return min(num_requests, own_concurrency(settings) or num_requests)


def _shared_prefix(settings: Generate, vocab_size: int) -> list[int]:
    """Tokens that belong to no sample."""
    numbers = random.Random(f"{settings.seed}/shared prefix")  # noqa: S311 - no secret
    return numbers.choices(range(vocab_size), k=settings.shared_prefix_tokens or 0)


def _tokens(seed: int, index: int, vocab_size: int, length: int) -> list[int]:
    """Tokens that belong to a sample, not to a replica."""
    return random.Random(sample_seed(seed, index)).choices(range(vocab_size), k=length)  # noqa: S311 - no secret


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
