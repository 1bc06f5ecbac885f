"""What vLLM's scheduler reports of each of its iterations."""

from __future__ import annotations

import time
from typing import Any

from pybench.worker.backends.engine.gaps import gap_values


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
        found = {"prefix_hit_fraction": self._num_found / self._num_looked_up} if self._num_looked_up else {}
        return {**gap_values(self._gaps_s), **counts, **found}

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
