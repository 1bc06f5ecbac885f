"""What the host must know about each backend without importing it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from pybench.model.workloads.registry import NODE_WORKLOADS
from pybench.model.workloads.settings import PARALLEL_AXES, BackendName, Settings, WorkloadName


def install(extra: str) -> str:
    """How the worker's Python gets the packages of an extra of pybench."""
    return f"install it there: pip install 'pybench[{extra}]'"


@dataclass(frozen=True, kw_only=True)
class Extra:
    """Packages that a point needs for one of its settings: for ``value``, or for any where that is ``None``.

    ``name`` is the extra of pybench that brings them.
    """

    name: str
    packages: tuple[str, ...]
    setting: str
    value: str | None = None

    def is_needed(self, settings: Settings) -> bool:
        """Whether a point of these settings needs it."""
        found = getattr(settings, self.setting, None)
        return found is not None if self.value is None else found == self.value

    def __str__(self) -> str:
        """What asks for it, as a user wrote it."""
        return self.setting if self.value is None else f"{self.setting} '{self.value}'"


@dataclass(frozen=True, kw_only=True)
class BackendTraits:
    """One backend's reach.

    ``model_types`` are the model families it can build (``model_type`` of a config); ``parallel_axes`` maps a workload
    to the parallel degrees the backend can raise above 1 for it; ``axes_inside`` are those of them that one process
    spans, for all others there are as many processes (torchrun). ``options`` are the optional settings that it honours:
    any other must stay at its default. ``bare_workloads`` need nothing that a process keeps but its ranks: they share
    one whatever else differs. Points of a workload in ``warm_settings`` may share a process and what it holds, a model
    or an engine, if they differ in those settings only, and in none of ``shaping`` (properties of the settings that the
    engine's arguments are made from). All need ``packages``, some settings one of ``extras``. ``device`` is
    the only kind it runs on, ``None`` for both; ``remedy`` says how a Python without it gets it.
    """

    model_types: tuple[str, ...]
    parallel_axes: dict[WorkloadName, tuple[str, ...]]
    packages: tuple[str, ...]
    extras: tuple[Extra, ...] = ()
    remedy: str = "install it there"
    axes_inside: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    device: str | None = None
    bare_workloads: tuple[WorkloadName, ...] = ()
    warm_settings: dict[WorkloadName, tuple[str, ...]] = field(default_factory=dict)
    shaping: tuple[str, ...] = ()

    @property
    def all_packages(self) -> tuple[str, ...]:
        """Packages whose versions shape a measurement."""
        return (*self.packages, *(package for extra in self.extras for package in extra.packages))

    def num_processes(self, settings: Settings) -> int:
        """Processes of a point: one for each GPU, but for those that one process drives together."""
        inside: list[int] = [getattr(settings, axis, 1) for axis in self.axes_inside]
        return settings.num_gpus // math.prod(inside)


_ENGINE_OPTIONS = ("max_num_seqs", "enforce_eager", "gpu_memory_utilization", "engine_args")
_SERVING = ("concurrency", "request_rate_per_s", "length_spread_fraction")
_SIZES = ("batch_size", "prompt_tokens", "output_tokens")

# What measures a node itself runs no model: it has no parallel degrees to raise.
_NODE: dict[WorkloadName, tuple[str, ...]] = dict.fromkeys(NODE_WORKLOADS, ())

_TRAINING_EXTRAS = (
    Extra(name="train", packages=("peft",), setting="lora_rank"),
    Extra(name="train", packages=("accelerate",), setting="strategy", value="accelerate"),
    Extra(name="deepspeed", packages=("deepspeed",), setting="strategy", value="deepspeed"),
    Extra(name="torchtune", packages=("torchtune", "torchao"), setting="strategy", value="torchtune"),
    Extra(name="unsloth", packages=("unsloth",), setting="strategy", value="unsloth"),
)

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
        extras=_TRAINING_EXTRAS,
        remedy=install("torch"),
        # Sustained load leaves more behind than memory: it has its process to itself.
        bare_workloads=tuple(name for name in NODE_WORKLOADS if name != "burn"),
        warm_settings={"generate": _SIZES},
    ),
    "transformers": BackendTraits(
        model_types=("llama", "qwen2", "qwen3"),
        parallel_axes={"generate": ("tensor_parallel", "pipeline_parallel", "data_parallel")},
        packages=("torch", "transformers", "accelerate"),
        remedy=install("transformers"),
        axes_inside=("pipeline_parallel",),
        options=("device_map",),
        warm_settings={"generate": _SIZES},
    ),
    "vllm": BackendTraits(
        model_types=("llama", "qwen2", "qwen3", "gemma3_text", "gpt_oss"),
        parallel_axes={"generate": ("tensor_parallel", "pipeline_parallel", "data_parallel")},
        packages=("torch", "transformers", "vllm"),
        remedy="use its image, docker.io/vllm/vllm-openai (--engine docker or podman), or install vllm there",
        axes_inside=("tensor_parallel", "pipeline_parallel"),
        options=(*_ENGINE_OPTIONS, "quantization", *_SERVING),
        device="cuda",
        warm_settings={"generate": (*_SIZES, *_SERVING)},
        shaping=("longest_sequence_tokens", "is_batch"),
    ),
    "tensorrt_llm": BackendTraits(
        model_types=("llama", "qwen2", "qwen3"),
        parallel_axes={"generate": ("tensor_parallel", "pipeline_parallel", "data_parallel")},
        packages=("torch", "transformers", "tensorrt_llm"),
        remedy="use its image, nvcr.io/nvidia/tensorrt-llm/release (--engine docker or podman)",
        axes_inside=("tensor_parallel", "pipeline_parallel"),
        options=(*_ENGINE_OPTIONS, *_SERVING),
        device="cuda",
        warm_settings={"generate": (*_SIZES, *_SERVING)},
        shaping=("longest_sequence_tokens",),
    ),
}
