"""A work order in TensorRT-LLM's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pybench.model.servers import GRAPH_BATCH_SIZE
from pybench.model.wire import Metric
from pybench.model.workloads.generate import Generate


class Iterations:
    """The most of everything over all iterations of a point so far, of memory where ``tell_memory``.

    Where the engine ``caches_prefixes``, also what share of their blocks prompts find. A pipeline of ``num_stages``
    works at as many batches at a time, and each iteration is one batch's.
    """

    def __init__(self, *, tell_memory: bool = True, num_stages: int = 1, caches_prefixes: bool = False) -> None:
        self._tell_memory = tell_memory
        self._caches_prefixes = caches_prefixes
        self._num_stages = num_stages
        self.memory_bytes: int | None = None
        self.cache_tokens: int | None = None
        self.max_requests: int | None = None
        # Found and missed since the engine's start, which another point may have counted before this one.
        self._blocks: tuple[int, int] | None = (0, 0) if tell_memory else None

    def take(self, stats: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """Take the iterations of one step; returns the step's own metrics, by name."""
        before = self._blocks
        num_paused = num_running = 0
        scheduled: dict[int, int] = {}
        for iteration in stats:
            cache = iteration.get("kvCacheStats") or {}
            self.memory_bytes = max(self.memory_bytes or 0, iteration.get("gpuMemUsage", 0)) or None
            self.cache_tokens = cache.get("maxNumBlocks", 0) * cache.get("tokensPerBlock", 0) or self.cache_tokens
            self.max_requests = iteration.get("maxNumActiveRequests") or self.max_requests
            if self._caches_prefixes and {"reusedBlocks", "missedBlocks"} <= cache.keys():
                self._blocks = (cache["reusedBlocks"], cache["missedBlocks"])
            batch = iteration.get("inflightBatchingStats") or {}
            num_paused += batch.get("numPausedRequests", 0)
            scheduled[batch.get("microBatchId", 0)] = batch.get("numScheduledRequests", 0)
            # A drained batch is not reported; requests that are active need not be scheduled.
            num_running = max(num_running, min(sum(scheduled.values()), iteration.get("numActiveRequests", 0)))
        if not num_running:
            return {}
        counts = {"num_preemptions": float(num_paused)}
        if before is not None and self._blocks is not None:
            reused, missed = (now - then for now, then in zip(self._blocks, before, strict=True))
            if reused + missed:
                counts["prefix_hit_fraction"] = reused / (reused + missed)
        # Versions that number every batch 0 leave unknown what a pipeline's stages ran together.
        return counts if len(scheduled) < self._num_stages else {**counts, "num_running": float(num_running)}

    def metrics(self, wanted: int | None) -> tuple[Metric, ...]:
        """The known figures of memory; ``wanted`` sequences were to run at a time."""
        runnable = None if wanted is None else min(wanted, self.max_requests or wanted)
        known = {
            "peak_memory_bytes": (self.memory_bytes if self._tell_memory else None, "bytes"),
            "kv_cache_tokens": (self.cache_tokens, "tokens"),
            "num_runnable": (runnable, ""),
        }
        return tuple(
            Metric(name=name, value=value, unit=unit) for name, (value, unit) in known.items() if value is not None
        )


GRAPHS = "cuda_graph_config"
_MAX_NUM_TOKENS = 8192
"""The library's default of ``max_num_tokens``."""
_OF_LONG_PROMPTS = {"max_num_tokens", "enable_chunked_prefill"}
KEPT_ITERATIONS = 1_000_000
"""``max_stats_len``: iterations of a step whose statistics are kept. By default the library keeps 1,000."""


def engine_arguments(settings: Generate, folder: Path) -> dict[str, Any]:
    """Keywords of ``tensorrt_llm.LLM`` for one replica, but for its cache: random weights, no tokenizer, statistics on.

    A prompt of more tokens than ``max_num_tokens`` is refused: the limit rises with the longest sequence, unless the
    suite gives it, or chunked prefill.
    """
    optional: dict[str, Any] = {} if settings.max_num_seqs is None else {"max_batch_size": settings.max_num_seqs}
    if settings.context_tokens > _MAX_NUM_TOKENS and not _OF_LONG_PROMPTS & settings.engine_args.keys():
        optional["max_num_tokens"] = settings.context_tokens
    return {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "dtype": settings.dtype,
        "max_seq_len": settings.context_tokens,
        "tensor_parallel_size": settings.tensor_parallel,
        "pipeline_parallel_size": settings.pipeline_parallel,
        "enable_iter_perf_stats": True,
        **optional,
    }


def graph_arguments(settings: Generate) -> dict[str, Any] | None:
    """Keywords of ``CudaGraphConfig``, ``None`` for no graphs: those of the suite, else as ``trtllm-bench`` has them.

    The library's own default has graphs for the exact sizes up to 128; any other batch decodes without.
    """
    if settings.enforce_eager:
        return None
    usual = {"enable_padding": True, "max_batch_size": settings.max_num_seqs or GRAPH_BATCH_SIZE}
    given = settings.engine_args.get(GRAPHS, usual)
    return given if isinstance(given, dict) else usual


def cache_arguments(settings: Generate) -> dict[str, Any]:
    """Keywords of ``KvCacheConfig``: whether it caches prefixes, in whole blocks, and its share of what weights leave.

    vLLM's share is one of the whole memory, weights included: with large models it is the smaller cache.
    """
    return {
        "enable_block_reuse": bool(settings.prefix_caching),
        "enable_partial_reuse": False,
        "free_gpu_memory_fraction": settings.gpu_memory_utilization,
    }
