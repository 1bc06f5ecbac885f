"""Servers that speak the OpenAI protocol: one entry each, and the command line that starts one.

A new server is an entry in :data:`SERVERS` and a golden command line in ``tests/golden/argv/``. The worker reads the
table too, with Python 3.10 and the standard library alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import Settings
from pybench.model.workloads.traits import Reason

SERVED_MODEL = "pybench"
GRAPH_BATCH_SIZE = 256
"""Largest batch with a CUDA graph in TensorRT-LLM, whose default is 128: the largest batch of the shipped suites."""


@dataclass(frozen=True, kw_only=True)
class ServerTraits:
    """How one server is started and asked.

    ``command`` has settings and other :func:`values <command_values>` in braces. ``flags`` maps a setting to its flag,
    of a boolean to the flags for true and for false, where ``None`` is no flag. A setting that is ``None`` gets none.
    ``config`` is the content of a file, in JSON, whose path replaces ``{config}``; it has values in braces, too.
    ``engine_args`` go there, or become flags where there is no file.

    ``health_path`` answers 200 once requests may come. ``metrics_path`` has Prometheus metrics. ``metrics`` maps a
    metric of ours to the counter whose increase in a step it is, or to two whose increases are divided. ``salt`` names
    the field of a request that keeps its prefixes from those of other salts. ``package`` must be installed,
    on a machine with GPUs, and is the backend whose image has the server.
    """

    command: tuple[str, ...]
    flags: dict[str, str | tuple[str | None, str | None]] = field(default_factory=dict)
    config: dict[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    package: str | None = None
    health_path: str = "/health"
    metrics_path: str = "/metrics"
    metrics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    salt: str | None = None


def _latencies(prefix: str) -> dict[str, tuple[str, ...]]:
    """The server's own mean TTFT and ITL, from its histograms."""
    names = {"server_ttft_s": "time_to_first_token_seconds", "server_itl_s": "inter_token_latency_seconds"}
    return {metric: (f"{prefix}{name}_sum", f"{prefix}{name}_count") for metric, name in names.items()}


SERVERS: dict[str, ServerTraits] = {
    "vllm": ServerTraits(  # 0.20.2: vllm/engine/arg_utils.py, vllm/entrypoints/openai/cli_args.py
        command=(
            *("{python}", "-m", "vllm.entrypoints.cli.main", "serve", "{model_folder}"),
            *("--served-model-name", SERVED_MODEL, "--host", "127.0.0.1", "--port", "{port}"),
            *("--disable-uvicorn-access-log", "--load-format", "dummy"),
        ),
        flags={
            "dtype": "--dtype",
            "seed": "--seed",
            "context_tokens": "--max-model-len",
            "tensor_parallel": "--tensor-parallel-size",
            "pipeline_parallel": "--pipeline-parallel-size",
            "gpu_memory_utilization": "--gpu-memory-utilization",
            "prefix_caching": ("--enable-prefix-caching", "--no-enable-prefix-caching"),
            "max_num_seqs": "--max-num-seqs",
            "enforce_eager": ("--enforce-eager", None),
            "quantization": "--quantization",
        },
        environment={"VLLM_HOST_IP": "127.0.0.1", "VLLM_NO_USAGE_STATS": "1"},
        package="vllm",
        metrics={
            "num_preemptions": ("vllm:num_preemptions_total",),
            "prefix_hit_fraction": ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
            **_latencies("vllm:"),
        },
        salt="cache_salt",
    ),
    "sglang": ServerTraits(  # 0.5.23: sglang/srt/arg_groups/fields; 0.5.11 ran
        command=(
            *("{python}", "-m", "sglang.launch_server", "--model-path", "{model_folder}"),
            *("--served-model-name", SERVED_MODEL, "--host", "127.0.0.1", "--port", "{port}"),
            *("--log-level-http", "warning", "--enable-metrics", "--load-format", "dummy"),
        ),
        flags={
            "dtype": "--dtype",
            "seed": "--random-seed",
            "context_tokens": "--context-length",
            "tensor_parallel": "--tp-size",
            "pipeline_parallel": "--pp-size",
            "gpu_memory_utilization": "--mem-fraction-static",
            "prefix_caching": (None, "--disable-radix-cache"),
            "max_num_seqs": "--max-running-requests",
            "enforce_eager": ("--disable-cuda-graph", None),
            "quantization": "--quantization",
        },
        package="sglang",
        metrics={"num_preemptions": ("sglang:num_retracted_requests_total",), **_latencies("sglang:")},
        salt="cache_salt",
    ),
    "trtllm": ServerTraits(  # 1.2: tensorrt_llm/commands/serve.py; not run
        command=(
            *("trtllm-serve", "{model_folder}", "--host", "127.0.0.1", "--port", "{port}", "--backend", "pytorch"),
            *("--enable_chunked_prefill", "--extra_llm_api_options", "{config}"),
        ),
        flags={
            "context_tokens": "--max_seq_len",
            "tensor_parallel": "--tp_size",
            "pipeline_parallel": "--pp_size",
            "max_num_seqs": "--max_batch_size",
            "quantization": (None, None),  # by a file beside the model's config
        },
        config={
            "load_format": "dummy",
            "dtype": "{dtype}",
            "cuda_graph_config": {"enable_padding": True, "max_batch_size": "{graph_batch_size}"},
            "kv_cache_config": {
                "enable_block_reuse": "{prefix_caching}",
                "free_gpu_memory_fraction": "{gpu_memory_utilization}",
            },
        },
        package="tensorrt_llm",
    ),
    "stub": ServerTraits(
        command=("{python}", "-I", "-B", "{stub}", "--port", "{port}"),
        flags={"tensor_parallel": "--tensor-parallel-size", "max_num_seqs": "--max-num-seqs"},
        metrics=_latencies("stub:"),
    ),
}
"""By the name that a suite gives as ``server``."""

# Settings that a server must pass on where they are not at their defaults.
_PASSED = (
    *("tensor_parallel", "pipeline_parallel"),
    *("max_num_seqs", "enforce_eager", "gpu_memory_utilization", "quantization", "prefix_caching"),
)
_OF_THE_PLACE = ("python", "stub", "model_folder", "checkpoint_folder", "port", "config")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def server_of(settings: Generate) -> ServerTraits:
    """The entry of a suite's server; one without flags for a ``server_command``."""
    given = settings.server_command
    return ServerTraits(command=tuple(given)) if given else SERVERS[settings.server or "stub"]


def image_backend(settings: Settings) -> str:
    """The backend whose image a point runs in. The image of a library serves its backend and its server."""
    served = settings if isinstance(settings, Generate) and settings.backend == "server" else None
    return (served and server_of(served).package) or settings.backend


def command_values(settings: Generate) -> dict[str, Any]:
    """Values for the braces of a command: all settings, and values derived from them."""
    return {
        **settings.to_json(),
        "context_tokens": settings.context_tokens,
        "prefix_caching": bool(settings.prefix_caching),
        "graph_batch_size": settings.max_num_seqs or GRAPH_BATCH_SIZE,
    }


def server_reasons(settings: Generate, device: str) -> Iterator[Reason]:
    """Why a server can't honour the settings here."""
    server = server_of(settings)
    name = f"server {settings.server}" if settings.server else "server_command"
    if server.package and device != "cuda":
        yield "device", f"{name} runs on GPUs only"
    named = set(_PLACEHOLDER.findall(json.dumps([server.command, server.config])))
    if unknown := sorted(named - {*command_values(settings), *_OF_THE_PLACE}):
        yield "settings", f"{name} has {{{unknown[0]}}}, which is no setting"
        return
    if settings.server_command and "port" not in named:
        yield "settings", "server_command lacks {port}, the port that the server must listen on"
    for setting in _PASSED:
        if setting in settings.chosen() and setting not in {*server.flags, *named}:
            yield "unsupported", f"{name} does not pass {setting} on"
    if settings.engine_args and settings.server_command:
        yield "settings", f"{name} takes no engine_args: write them into the command"
    words = (*server.config, *_own_command(settings, dict.fromkeys(_OF_THE_PLACE, "")))
    decided = {word.lstrip("-").replace("-", "_") for word in words}
    for argument in settings.engine_args:
        if argument.lstrip("-").replace("-", "_") in decided:
            yield "settings", f"engine_args.{argument}: pybench sets it itself"


def server_command(settings: Generate, place: Mapping[str, str]) -> tuple[str, ...]:
    """The command line of one replica's server; ``place`` has the values that only its worker knows."""
    command = [*_own_command(settings, place)]
    for name, value in settings.engine_args.items() if not server_of(settings).config else ():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            command.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            command += (f"--{flag}", value if isinstance(value, str) else json.dumps(value))
    return tuple(command)


def _own_command(settings: Generate, place: Mapping[str, str]) -> Iterator[str]:
    server = server_of(settings)
    values = {**command_values(settings), **place}
    for part in server.command:
        yield _PLACEHOLDER.sub(lambda match: str(values[match[1]]), part)
    for setting, flag in server.flags.items():
        value = values[setting]
        if isinstance(flag, tuple):
            yield from [text for text in (flag[0] if value else flag[1],) if text]
        elif value is not None:
            yield from (flag, str(value))


def server_config(settings: Generate) -> str | None:
    """The text of the server's file, in JSON; ``None`` where it has none."""
    config = _filled(server_of(settings).config, command_values(settings))
    return json.dumps({**config, **settings.engine_args}, indent=1) if config else None


def _filled(value: Any, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {name: _filled(part, values) for name, part in value.items()}
    word = _PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
    return values[word[1]] if word else value
