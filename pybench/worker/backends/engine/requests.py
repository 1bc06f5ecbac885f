"""The requests of a step: lengths, tokens and arrivals, the same in every step and for every number of replicas."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pybench.model.wire import RequestTimes, Work
from pybench.model.workloads.generate import Generate, drawn_lengths
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
