"""Requests that kept their limits, and the time in which the load of a step is steady."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.wire import RequestTimes, Step
from pybench.model.workloads.generate import Generate


def num_good(settings: Generate, requests: Sequence[RequestTimes]) -> int:
    """Requests that kept every limit of the settings (``vllm bench serve --goodput``)."""
    return sum(_is_good(settings, request) for request in requests)


def _is_good(settings: Generate, request: RequestTimes) -> bool:
    decode_ns = request.last_token_ns - request.first_token_ns
    limits = (
        (settings.ttft_limit_s, request.first_token_ns - request.arrival_ns),
        (settings.tpot_limit_s, decode_ns / max(1, request.output_tokens - 1)),
        (settings.e2e_limit_s, request.last_token_ns - request.arrival_ns),
    )
    return all(limit_s is None or taken_ns <= limit_s * 1e9 for limit_s, taken_ns in limits)


def steady_window_ns(settings: Generate, ranks: Sequence[Step]) -> tuple[int, int] | None:
    """The time in which the load of a step is steady; ``None`` where it never is, or all sequences begin together.

    A closed loop is steady once each of its first ``concurrency`` requests has its first token, until the last arrival.
    An open loop is steady from the end of the first request to the last arrival. CLOCK_MONOTONIC nanoseconds.
    """
    requests = sorted((request for step in ranks for request in step.requests), key=lambda request: request.arrival_ns)
    if settings.is_batch or not requests:
        return None
    if settings.concurrency is not None:
        start_ns = max(request.first_token_ns for request in requests[: settings.concurrency])
    else:
        start_ns = min(request.last_token_ns for request in requests)
    end_ns = requests[-1].arrival_ns
    return (start_ns, end_ns) if start_ns < end_ns else None


def steady_tokens(ranks: Sequence[Step], window_ns: tuple[int, int]) -> float:
    """Tokens decoded in a window: each request's are taken as even from its first to its last."""
    start_ns, end_ns = window_ns
    total = 0.0
    for request in (request for step in ranks for request in step.requests):
        total += start_ns <= request.first_token_ns < end_ns
        lasting_ns = request.last_token_ns - request.first_token_ns
        inside_ns = min(end_ns, request.last_token_ns) - max(start_ns, request.first_token_ns)
        if lasting_ns > 0 and inside_ns > 0:
            total += (request.output_tokens - 1) * inside_ns / lasting_ns
    return total
