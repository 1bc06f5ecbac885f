"""What the host must know about each backend without importing it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pybench.model.workloads.settings import PARALLEL_AXES, BackendName, Settings, WorkloadName


@dataclass(frozen=True, kw_only=True)
class BackendTraits:
    """One backend's reach.

    ``model_types`` are the model families it can build (``model_type`` of a config); ``parallel_axes`` maps a workload
    to the parallel degrees the backend can raise above 1 for it; ``axes_inside`` are those of them that one process
    spans, for all others there are as many processes (torchrun). ``options`` are the optional settings that it honours:
    any other must stay at its default. All need ``packages``, some settings one of ``optional_packages``. ``device`` is
    the only kind it runs on, ``None`` for both; ``remedy`` says how a Python without it gets it.
    """

    model_types: tuple[str, ...]
    parallel_axes: dict[WorkloadName, tuple[str, ...]]
    packages: tuple[str, ...]
    optional_packages: tuple[str, ...] = ()
    remedy: str = "install it there"
    axes_inside: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    device: str | None = None

    @property
    def all_packages(self) -> tuple[str, ...]:
        """Packages whose versions shape a measurement."""
        return (*self.packages, *self.optional_packages)

    def num_processes(self, settings: Settings) -> int:
        """Processes of a point: one for each GPU, but for those that one process drives together."""
        inside: list[int] = [getattr(settings, axis, 1) for axis in self.axes_inside]
        return settings.num_gpus // math.prod(inside)


_ENGINE_OPTIONS = ("max_num_seqs", "enforce_eager", "gpu_memory_utilization", "engine_args")
_SERVING = ("concurrency", "request_rate_per_s", "length_spread_fraction")

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
        parallel_axes={
            "generate": ("tensor_parallel", "data_parallel"),
            "train": PARALLEL_AXES,
            "evaluate": ("data_parallel",),
            **_NODE,
        },
        packages=("torch", "transformers"),
        optional_packages=("peft", "accelerate", "deepspeed", "torchtune", "torchao", "unsloth"),
        remedy="install it there: pip install 'pybench[torch]'",
    ),
    "transformers": BackendTraits(
        model_types=("llama", "qwen2", "qwen3"),
        parallel_axes={"generate": ("tensor_parallel", "pipeline_parallel", "data_parallel")},
        packages=("torch", "transformers", "accelerate"),
        remedy="install it there: pip install 'pybench[transformers]'",
        axes_inside=("pipeline_parallel",),
        options=("device_map",),
    ),
    "vllm": BackendTraits(
        model_types=("llama", "qwen2", "qwen3", "gemma3_text", "gpt_oss"),
        parallel_axes={"generate": ("tensor_parallel", "pipeline_parallel", "data_parallel")},
        packages=("torch", "transformers", "vllm"),
        remedy="use its image, docker.io/vllm/vllm-openai (--engine docker or podman), or install vllm there",
        axes_inside=("tensor_parallel", "pipeline_parallel"),
        options=(*_ENGINE_OPTIONS, "quantization", *_SERVING),
        device="cuda",
    ),
    "tensorrt_llm": BackendTraits(
        model_types=("llama", "qwen2", "qwen3"),
        parallel_axes={"generate": ("tensor_parallel", "pipeline_parallel", "data_parallel")},
        packages=("torch", "transformers", "tensorrt_llm"),
        remedy="use its image, nvcr.io/nvidia/tensorrt-llm/release (--engine docker or podman)",
        axes_inside=("tensor_parallel", "pipeline_parallel"),
        options=(*_ENGINE_OPTIONS, *_SERVING),
        device="cuda",
    ),
}
