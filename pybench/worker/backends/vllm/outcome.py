"""From vLLM's outputs to what a step reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pybench.model.wire import RequestTimes
from pybench.worker.backend import EngineError, StepOutcome
from pybench.worker.backends.engine.requests import work_of
from pybench.worker.backends.vllm.iterations import Iterations


def times_of(output: Any, arrival_ns: int) -> RequestTimes:
    """Times of one finished request. The engine stamps tokens on CLOCK_MONOTONIC, which is ours too.

    Tokens are counted, not taken from the request. Raises :class:`EngineError` when the engine kept no times.
    """
    metrics = output.metrics
    if metrics is None or not metrics.first_token_ts:
        raise EngineError(f"vLLM kept no times of request {output.request_id}")
    return RequestTimes(
        arrival_ns=arrival_ns,
        first_token_ns=round(metrics.first_token_ts * 1e9),
        last_token_ns=round(metrics.last_token_ts * 1e9),
        prompt_tokens=len(output.prompt_token_ids),
        output_tokens=len(output.outputs[0].token_ids),
    )


def outcome_of(requests: Sequence[RequestTimes], iterations: Iterations) -> StepOutcome:
    """The whole step."""
    return StepOutcome(
        work=work_of(requests),
        token_end_ns=tuple(iterations.end_ns),
        requests=tuple(requests),
        values=iterations.values(),
    )
