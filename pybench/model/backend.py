"""What the host must know about each backend without importing it."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.workloads.settings import BackendName, WorkloadName


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


# What measures a node itself runs no model: it has no parallel degrees to raise.
_NODE: dict[WorkloadName, tuple[str, ...]] = {
    "matmul": (),
    "memory_bandwidth": (),
    "host_device_copy": (),
    "peer_copy": (),
    "collective": (),
    "launch_latency": (),
    "burn": (),
}

BACKENDS: dict[BackendName, BackendTraits] = {
    "torch": BackendTraits(
        model_types=("llama", "qwen2", "qwen3", "gemma3_text"),
        parallel_axes={"generate": ("tensor_parallel",), "train": ("data_parallel",), **_NODE},
        rank_per_gpu=True,
        packages=("torch", "transformers"),
    ),
}
