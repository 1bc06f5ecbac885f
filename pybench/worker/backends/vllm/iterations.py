"""Reports of vLLM's scheduler, one for each iteration, and the outcome of a step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pybench.model.wire import RequestTimes
from pybench.worker.backend import EngineError, StepOutcome
from pybench.worker.backends.engine.requests import gap_values, work_of


class Iterations:
    """A stat logger of vLLM's (``vllm.v1.metrics.loggers.StatLoggerBase``), which calls ``record`` every iteration.

    Its gaps between tokens are the engine's own, one for each request and iteration.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the step before."""
        self.end_ns: list[int] = []
        self._gaps_s: list[float] = []
        self._num_preemptions = 0
        self._num_running = 0
        self._num_looked_up = 0
        self._num_found = 0

    def values(self) -> dict[str, float]:
        """Metrics of the step so far, by name."""
        counts = {"num_preemptions": float(self._num_preemptions), "num_running": float(self._num_running)}
        hits = {"prefix_hit_fraction": self._num_found / self._num_looked_up} if self._num_looked_up else {}
        return {**gap_values(self._gaps_s), **counts, **hits}

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_more: Any, **_others: Any) -> None:
        """Take one iteration's statistics."""
        if iteration_stats is not None:
            if iteration_stats.num_generation_tokens:
                self.end_ns.append(time.monotonic_ns())
            self._gaps_s += iteration_stats.inter_token_latencies_iter
            self._num_preemptions += iteration_stats.num_preempted_reqs
        if scheduler_stats is not None:
            self._num_running = max(self._num_running, scheduler_stats.num_running_reqs)
            # Prompt tokens of new requests; none are looked up without prefix caching.
            self._num_looked_up += scheduler_stats.prefix_cache_stats.queries
            self._num_found += scheduler_stats.prefix_cache_stats.hits

    def log_engine_initialized(self) -> None:
        """Nothing to report."""

    def log(self) -> None:
        """Nothing to report."""

    def record_sleep_state(self, *_state: int) -> None:
        """The engine never sleeps here."""


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
