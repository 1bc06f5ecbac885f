"""What the host must know about each backend without importing it."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.workloads.settings import PARALLEL_AXES, BackendName, WorkloadName


@dataclass(frozen=True, kw_only=True)
class BackendTraits:
    """One backend's reach.

    ``model_types`` are the model families it can build (``model_type`` of a config); ``parallel_axes`` maps a workload
    to the parallel degrees the backend can raise above 1 for it; ``rank_per_gpu`` says whether it wants one process per
    GPU (torchrun) or starts its own workers.
    """

    model_types: tuple[str, ...]
    parallel_axes: dict[WorkloadName, tuple[str, ...]]
    rank_per_gpu: bool
    packages: tuple[str, ...]


BACKENDS: dict[BackendName, BackendTraits] = {
    "torch": BackendTraits(
        model_types=("llama", "qwen2", "qwen3", "gemma3_text"),
        parallel_axes={"generate": ("tensor_parallel",), "train": PARALLEL_AXES, "evaluate": ("data_parallel",)},
        rank_per_gpu=True,
        packages=("torch", "transformers", "peft", "accelerate", "deepspeed"),
    ),
}
