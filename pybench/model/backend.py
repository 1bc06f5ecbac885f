"""The properties of each backend that the host needs without importing it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from pybench.model.servers import SERVERS
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.registry import NODE_WORKLOADS
from pybench.model.workloads.settings import PARALLEL_AXES, BackendName, Settings, WorkloadName
from pybench.model.workloads.turn import Turn

_PACKAGES = {
    "torch": "torch transformers",
    "transformers": "accelerate torch transformers",
    "train": "accelerate peft",
    "qlora": "bitsandbytes",
    "deepspeed": "deepspeed",
    "torchtune": "torchao torchtune",
    "unsloth": "unsloth",
    "server": "aiohttp",
}
"""The packages of each extra of pybench. A remedy names these, for a Python without pybench."""


def install(extra: str) -> str:
    """How the worker's Python gets the packages of an extra of pybench."""
    return f"install it there: pip install {_PACKAGES[extra]}"


@dataclass(frozen=True, kw_only=True)
class Extra:
    """Packages that a setting needs, for ``value`` or for any, from pybench's extra ``name`` or by a ``remedy``."""

    name: str
    packages: tuple[str, ...]
    setting: str
    value: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        """The setting that needs it, as a user wrote it."""
        return self.setting if self.value is None else f"{self.setting} '{self.value}'"


@dataclass(frozen=True, kw_only=True)
class BackendTraits:
    """One backend's reach.

    ``model_types`` are the model families it can build (``model_type`` of a config). ``unsplit_types`` maps the
    families that it can't split over tensor-parallel ranks to the reason. ``parallel_axes`` maps a workload to the
    parallel degrees the backend can raise above 1 for it; One process spans the degrees in ``axes_inside``; each other
    degree multiplies the processes. Those in ``lone_axes`` are raised with no other, those in ``gpu_axes`` on GPUs
    only. ``options`` are the optional settings that it honours: any other must stay at its default. Of ``quantization``
    it has the values ``quantizations``; families ``not_in_float16`` it refuses in that type. ``bare_workloads`` need
    nothing that a process keeps but its ranks: they share one whatever else differs. Points of a workload in
    ``warm_settings`` may share a process with its model or engine if they differ in those settings only. They must
    agree in ``shaping``, the properties that shape the engine's arguments. An engine that ``pads_vocabulary`` splits
    any over tensor-parallel ranks. All need ``packages``, some settings one of ``extras``. ``device`` is the only kind
    it runs on, ``None`` for both; ``remedy`` is how a Python without it gets it.

    ``distributions`` are the packages, by their registry names, whose versions must match for two runs to be compared.
    ``tuning_prefixes`` begin the names of environment variables that tune it. ``launches_per_layer`` is how many
    kernels at least a decode round launches one by one for each layer, ``None`` where it replays a graph or that is not
    known. An engine that ``fuses_norms`` computes each in one kernel. The workloads in ``over_nodes`` it can spread
    over several hosts. In its log, or in an error that it raises, ``log_not_started`` and ``log_echoes`` are about
    another process's failure, at start and at work, ``log_death`` is around the name of a killed process, and
    ``memory_words``, in lower case, refuse to start for lack of memory. The module
    ``pybench.worker.backends.NAME.entry`` follows from its name.
    """

    model_types: tuple[str, ...]
    parallel_axes: dict[WorkloadName, tuple[str, ...]]
    packages: tuple[str, ...]
    extras: tuple[Extra, ...] = ()
    remedy: str = "install it there"
    unsplit_types: dict[str, str] = field(default_factory=dict)
    axes_inside: tuple[str, ...] = ()
    lone_axes: tuple[str, ...] = ()
    gpu_axes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    quantizations: tuple[str, ...] = ()
    not_in_float16: tuple[str, ...] = ()
    device: str | None = None
    bare_workloads: tuple[WorkloadName, ...] = ()
    warm_settings: dict[WorkloadName, tuple[str, ...]] = field(default_factory=dict)
    shaping: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    tuning_prefixes: tuple[str, ...] = ()
    launches_per_layer: int | None = None
    fuses_norms: bool = False
    log_not_started: tuple[str, ...] = ()
    log_echoes: tuple[str, ...] = ()
    log_death: tuple[str, str] | None = None
    memory_words: tuple[str, ...] = ()
    pads_vocabulary: bool = False
    over_nodes: tuple[WorkloadName, ...] = ()

    @property
    def all_packages(self) -> tuple[str, ...]:
        """Packages whose versions shape a measurement."""
        return (*self.packages, *(package for extra in self.extras for package in extra.packages))

    def num_processes(self, settings: Settings) -> int:
        """Processes of a point: one a GPU, unless one drives several; an engine over several hosts has one on each."""
        if isinstance(settings, Turn) and settings.num_trainers > 1:
            return settings.num_trainers
        inside: list[int] = [getattr(settings, axis, 1) for axis in self.axes_inside]
        hosts_each = settings.nodes_of_replica if self.axes_inside and isinstance(settings, Generate) else 1
        return settings.num_gpus // math.prod(inside) * hosts_each


# Each family that an engine can load from a config alone, with its class in transformers.
MODEL_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
}
_ENGINE_OPTIONS = ("max_num_seqs", "max_context_tokens", "enforce_eager", "gpu_memory_utilization", "engine_args")
_SERVING = ("concurrency", "request_rate_per_s", "burstiness", "length_spread_fraction")
_LIMITS = ("ttft_limit_s", "tpot_limit_s", "e2e_limit_s")
_OF_SERVERS = ("server", "server_command", "request_limit_s")
_PREFIXES = ("shared_prefix_tokens", "prefix_caching")
_SIZES = ("batch_size", "prompt_tokens", "output_tokens")

# Workloads that measure a node run no model, so they have no parallel degrees.
_NODE: dict[WorkloadName, tuple[str, ...]] = dict.fromkeys(NODE_WORKLOADS, ())

_ADAPTERS = Extra(name="train", packages=("peft",), setting="lora_rank")
_PACKED = Extra(name="qlora", packages=("bitsandbytes",), setting="weights", value="nf4")
_FOUR_BITS = Extra(name="qlora", packages=("bitsandbytes",), setting="quantization", value="bitsandbytes")
_OWN_MODELS = (
    Extra(name="torchtune", packages=("torchtune", "torchao"), setting="strategy", value="torchtune"),
    Extra(name="unsloth", packages=("unsloth",), setting="strategy", value="unsloth"),
)
_TRAINING_EXTRAS = (
    _ADAPTERS,
    Extra(name="train", packages=("accelerate",), setting="strategy", value="accelerate"),
    _PACKED,
    Extra(name="deepspeed", packages=("deepspeed",), setting="strategy", value="deepspeed"),
    *_OWN_MODELS,
)

_SERVERS = tuple(
    Extra(name=name, packages=(package,), setting="server", value=name, remedy=f"use its image, or install {name}")
    for name, package in ((name, entry.package) for name, entry in SERVERS.items())
    if package
)
# Engines that share requests out among replicas, each a process over several GPUs.
_ENGINE = BackendTraits(
    model_types=tuple(MODEL_CLASSES),
    parallel_axes={"generate": ("tensor_parallel", "pipeline_parallel", "data_parallel")},
    packages=("torch", "transformers"),
    axes_inside=("tensor_parallel", "pipeline_parallel"),
    options=(*_ENGINE_OPTIONS, "quantization", *_SERVING, *_PREFIXES),
    device="cuda",
    warm_settings={"generate": (*_SIZES, *_SERVING, "shared_prefix_tokens")},
    shaping=("context_tokens",),
    pads_vocabulary=True,
    fuses_norms=True,
)
BACKENDS: dict[BackendName, BackendTraits] = {
    "torch": BackendTraits(
        # Gemma 2 caps the scores of attention, which no kernel of torch does.
        model_types=("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text", "phi3", "gpt_oss"),
        unsplit_types={"gpt_oss": "experts", "phi3": "fused projections"},
        parallel_axes={
            "generate": ("tensor_parallel", "data_parallel"),
            "train": PARALLEL_AXES,
            "evaluate": ("data_parallel",),
            "turn": ("tensor_parallel",),
            "checkpoint": ("data_parallel",),
            **_NODE,
        },
        packages=("torch", "transformers"),
        extras=_TRAINING_EXTRAS,
        remedy=install("torch"),
        bare_workloads=NODE_WORKLOADS,
        warm_settings={"generate": _SIZES},
        distributions=("torch", "transformers"),
        tuning_prefixes=("TORCH_", "TORCHINDUCTOR_", "TRITON_", "PYTORCH_"),
        over_nodes=("generate", "train", "collective"),
    ),
    "transformers": BackendTraits(
        model_types=("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3"),
        parallel_axes={
            "generate": ("tensor_parallel", "pipeline_parallel", "data_parallel"),
            "evaluate": ("data_parallel",),
        },
        packages=("torch", "transformers", "accelerate"),
        remedy=install("transformers"),
        axes_inside=("pipeline_parallel",),
        lone_axes=("tensor_parallel",),
        gpu_axes=("pipeline_parallel",),
        extras=(_FOUR_BITS,),
        options=("device_map", "quantization", "beams"),
        quantizations=("bitsandbytes",),
        warm_settings={"generate": _SIZES},
        distributions=("transformers",),
        tuning_prefixes=("HF_",),
        # transformers 5.17, Llama, eager: 7 products, attention, 4 concatenations (cache, rotation), 9 multiplications,
        # 6 additions, 4 casts, 2 each of pow, mean, rsqrt and neg, SiLU.
        launches_per_layer=40,
    ),
    "vllm": replace(
        _ENGINE,
        parallel_axes={**_ENGINE.parallel_axes, "turn": ("tensor_parallel",)},
        packages=(*_ENGINE.packages, "vllm"),
        extras=(_ADAPTERS, _PACKED, *_OWN_MODELS),
        remedy="use its image, docker.io/vllm/vllm-openai (--engine docker or podman), or install vllm there",
        quantizations=("fp8",),
        # vllm/config/model.py: their sums overflow
        not_in_float16=("gemma2", "gemma3_text"),
        shaping=("context_tokens", "is_batch"),
        distributions=("vllm",),
        tuning_prefixes=("VLLM_",),
        # vllm/v1/engine/utils.py, wait_for_engine_startup
        log_not_started=("Engine core initialization failed",),
        log_echoes=("EngineCore encountered an issue", "EngineDeadError"),
        # vllm/v1/executor/multiproc_executor.py
        log_death=("Worker proc ", " died unexpectedly"),
        # vllm/v1/core/kv_cache_utils.py and vllm/v1/worker/utils.py
        memory_words=("no available memory", "available kv cache memory", "free memory on device"),
        over_nodes=("generate",),
    ),
    "tensorrt_llm": replace(
        _ENGINE,
        model_types=("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "phi3"),
        packages=(*_ENGINE.packages, "tensorrt_llm"),
        remedy="use its image, nvcr.io/nvidia/tensorrt-llm/release (--engine docker or podman)",
        quantizations=("fp8", "awq"),
        distributions=("tensorrt-llm",),
        tuning_prefixes=("TRTLLM_", "TLLM_"),
        # tensorrt_llm/executor/proxy.py, of a worker that raised at start, which is the error's cause, or ended
        log_not_started=("Executor worker returned error", "Executor worker died during initialization"),
        memory_words=("insufficient gpu memory",),
    ),
    "server": replace(
        _ENGINE,
        packages=("aiohttp",),
        extras=_SERVERS,
        remedy=install("server"),
        options=(*_ENGINE.options, *_OF_SERVERS),
        device=None,
        quantizations=("fp8",),
        warm_settings={"generate": (*_ENGINE.warm_settings["generate"], *_LIMITS)},
        tuning_prefixes=("SGLANG_",),
        distributions=("aiohttp", *(entry.package.replace("_", "-") for entry in SERVERS.values() if entry.package)),
    ),
}


def replica_of(settings: Settings, rank: int) -> int:
    """The replica that a rank is part of: generation alone has replicas that share nothing."""
    if not isinstance(settings, Generate):
        return 0
    return rank // (BACKENDS[settings.backend].num_processes(settings) // settings.data_parallel)


# In lower case: torch's and CUDA's own, Python's, and those of engines.
_MEMORY = ("out of memory", "outofmemory", "can't allocate memory")
MEMORY_WORDS = (*_MEMORY, *(word for traits in BACKENDS.values() for word in traits.memory_words))
"""Any of these in an error, in lower case, means that memory ran out."""


def is_out_of_memory(error: str) -> bool:
    """Whether an error's text reports that memory ran out."""
    return any(word in error.lower() for word in MEMORY_WORDS)


# After the sizes, torch describes its allocator in three sentences and an address.
_OF_THE_ALLOCATOR = " Including non-PyTorch memory"


def without_allocator(error: str) -> str:
    """An error's text without what torch adds on its allocator where memory ran out."""
    return error.partition(_OF_THE_ALLOCATOR)[0]
