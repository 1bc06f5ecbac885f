"""A work order in TensorRT-LLM's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pybench.model.workloads.generate import Generate


def engine_arguments(settings: Generate, folder: Path) -> dict[str, Any]:
    """Keywords of ``tensorrt_llm.LLM`` for one replica, but for its cache: random weights, no tokenizer, statistics on.

    CUDA graphs are on unless the settings turn them off: without the keyword the library chooses their sizes itself.
    """
    optional: dict[str, Any] = {} if settings.max_num_seqs is None else {"max_batch_size": settings.max_num_seqs}
    if settings.enforce_eager:
        optional["cuda_graph_config"] = None
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


def cache_arguments(settings: Generate) -> dict[str, Any]:
    """Keywords of ``KvCacheConfig``: whether it caches prefixes, in whole blocks, and its share of what weights leave.

    vLLM's share is one of the whole memory, weights included: with large models it is the smaller cache.
    """
    return {
        "enable_block_reuse": bool(settings.prefix_caching),
        "enable_partial_reuse": False,
        "free_gpu_memory_fraction": settings.gpu_memory_utilization,
    }
