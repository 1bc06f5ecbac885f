"""Arguments of engines that pybench's own settings decide: ``engine_args`` may not give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from pybench.model.workloads.rules import Breach, GivenSettings
from pybench.model.workloads.settings import Settings

_DECIDED: dict[str, dict[str, str | None]] = {
    "vllm": {
        "model": "model",
        "dtype": "dtype",
        "seed": "seed",
        "max_model_len": "max_context_tokens",
        "tensor_parallel_size": "tensor_parallel",
        "pipeline_parallel_size": "pipeline_parallel",
        "data_parallel_size": "data_parallel",
        "data_parallel_size_local": "data_parallel",
        "data_parallel_rank": "data_parallel",
        "enforce_eager": "enforce_eager",
        "gpu_memory_utilization": "gpu_memory_utilization",
        "quantization": "quantization",
        "max_num_seqs": "max_num_seqs",
        "enable_prefix_caching": "prefix_caching",
        "distributed_executor_backend": None,
        "nnodes": "nodes",
        "node_rank": None,
        "master_addr": None,
        "master_port": None,
    },
    "tensorrt_llm": {
        "model": "model",
        "dtype": "dtype",
        "max_seq_len": "max_context_tokens",
        "tensor_parallel_size": "tensor_parallel",
        "pipeline_parallel_size": "pipeline_parallel",
        "max_batch_size": "max_num_seqs",
        "cuda_graph_config": "enforce_eager",
        "kv_cache_config": "gpu_memory_utilization",
        "backend": None,
    },
}
"""By backend, each with the setting to use instead; ``None``: there is none."""
_DECIDED_IN_TURNS = {
    "enable_sleep_mode": "sleep_level",
    "enable_lora": "lora_rank",
    "max_lora_rank": "lora_rank",
    "max_loras": None,
}


def decided_arguments(backend: str, workload: type[Settings]) -> dict[str, str | None]:
    """Arguments that settings of a workload decide, each with its setting; ``None`` where it has no such setting."""
    names = {field.name for field in fields(workload)}
    found: dict[str, str | None] = dict(_DECIDED.get(backend, {}))
    if found and "sleep_level" in names:
        found.update(_DECIDED_IN_TURNS)
    return {argument: setting if setting in names else None for argument, setting in found.items()}


def decided_text(argument: str, setting: str | None) -> str:
    """Why an argument can't be given, and the ``setting`` to give instead."""
    instead = f"; set the benchmark's {setting} instead" if setting else " and has no setting for it"
    return f"{argument}: pybench sets it itself{instead}"


def engine_argument_breaches(given: GivenSettings, workload: type[Settings]) -> Iterator[Breach]:
    """Arguments in ``engine_args`` that settings decide."""
    for backend in given.values("backend"):
        decided = decided_arguments(str(backend), workload)
        for arguments in given.values("engine_args"):
            for argument in arguments if isinstance(arguments, Mapping) else ():
                if argument in decided:
                    yield Breach(decided_text(argument, decided[argument]), "engine_args")
