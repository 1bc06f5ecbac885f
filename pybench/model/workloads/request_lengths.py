"""How long the requests of a step are and when they come: drawn by the worker, and by the host that checks its work."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from pybench.model.workloads.generate import Generate


@dataclass(frozen=True)
class RequestLengths:
    """One request of a step: its number, its lengths in tokens, and when after the step's start it comes, in s."""

    index: int
    prompt_tokens: int
    output_tokens: int
    arrival_s: float


def drawn_lengths(settings: Generate, replica: int) -> Iterator[RequestLengths]:
    """The share of replica ``replica`` in the step's requests, every ``data_parallel``-th of them.

    Lengths are evenly distributed within the settings' spread; arrivals are a Poisson process of the settings' rate
    over all replicas together, else all at 0. Replicas have requests in turn, as by a round-robin load balancer: each
    one's arrivals are more even than a Poisson process.
    """
    numbers = random.Random(settings.seed)  # noqa: S311 - no secret
    arrival_s = 0.0
    for index in range(settings.batch_size):
        if settings.request_rate_per_s is not None:
            arrival_s += numbers.expovariate(settings.request_rate_per_s)
        prompt, output = (_length(numbers, settings, n) for n in (settings.prompt_tokens, settings.output_tokens))
        if index % settings.data_parallel == replica:
            yield RequestLengths(index, prompt, output, arrival_s)


def _length(numbers: random.Random, settings: Generate, tokens: int) -> int:
    return numbers.randint(settings.shortest(tokens), settings.longest(tokens))
