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

SERVED_MODEL = "pybench"
"""The model's name in requests."""


@dataclass(frozen=True, kw_only=True)
class ServerTraits:
    """How one server is started and asked.

    ``command`` has settings and other :func:`values <command_values>` in braces. ``flags`` maps a setting to its flag,
    of a boolean to the flags for true and for false, where ``None`` is no flag. A setting that is ``None`` gets none.
    ``config`` is the content of a file, in JSON, whose path replaces ``{config}``; it has values in braces, too.
    ``engine_args`` become flags where ``takes_more``.

    ``health_path`` answers 200 once requests may come. ``metrics_path`` has Prometheus metrics. ``metrics`` maps a
    metric of ours to the counter whose increase in a step it is, or to two whose increases are divided. ``salt`` names
    the field of a request that keeps its prefixes from those of other salts. ``package`` must be installed.
    ``image_backend`` is the backend whose image has the server. ``device`` is the only kind it runs on.
    """

    command: tuple[str, ...]
    flags: dict[str, str | tuple[str | None, str | None]] = field(default_factory=dict)
    config: dict[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    takes_more: bool = True
    package: str | None = None
    image_backend: str | None = None
    device: str | None = "cuda"
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
        image_backend="vllm",
        metrics={
            "num_preemptions": ("vllm:num_preemptions_total",),
            "prefix_hit_fraction": ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
            **_latencies("vllm:"),
        },
        salt="cache_salt",
    ),
    "stub": ServerTraits(
        command=("{python}", "-I", "-B", "{stub}", "--port", "{port}"),
        flags={"tensor_parallel": "--tensor-parallel-size"},
        device=None,
        metrics=_latencies("stub:"),
    ),
}
"""By the name that a suite gives as ``server``."""

# Settings that a flag must pass on where they are not at their defaults.
_PASSED = ("tensor_parallel", "pipeline_parallel")
_OPTIONAL = ("max_num_seqs", "enforce_eager", "gpu_memory_utilization", "quantization", "prefix_caching")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def server_of(settings: Generate) -> ServerTraits:
    """The entry of a suite's server; one without flags for a ``server_command``."""
    if settings.server_command:
        return ServerTraits(command=tuple(settings.server_command), takes_more=False, device=None)
    return SERVERS[settings.server or "stub"]


def image_backend(settings: Settings) -> str:
    """The backend whose image a point runs in: its own, or that of the same library as its server."""
    if isinstance(settings, Generate) and settings.backend == "server":
        return server_of(settings).image_backend or settings.backend
    return settings.backend


def command_values(settings: Generate) -> dict[str, Any]:
    """What a command may have in braces: settings, and what follows from them."""
    ours = {"context_tokens": settings.context_tokens, "prefix_caching": bool(settings.prefix_caching)}
    return {**settings.to_json(), **ours}


_OF_THE_PLACE = ("python", "stub", "model_folder", "port", "config")


def server_reasons(settings: Generate, device: str) -> Iterator[str]:
    """Why a server can't honour the settings here."""
    server = server_of(settings)
    name = f"server {settings.server}" if settings.server else "server_command"
    if server.device not in {None, device}:
        yield f"{name} runs on GPUs only"
    named = {word for part in server.command for word in _PLACEHOLDER.findall(part)}
    known = {*command_values(settings), *_OF_THE_PLACE}
    for word in sorted(named - known):
        yield f"{name} has {{{word}}}, which is no setting; write {{{{ and }}}} for braces that stay"
    if settings.server_command and "port" not in named:
        yield "server_command lacks {port}, the port that the server must listen on"
    passed = {*server.flags, *named}
    for axis in _PASSED:
        if getattr(settings, axis) > 1 and axis not in passed:
            yield f"{name} has no flag for {axis}"
    for option in _OPTIONAL:
        if settings.chosen().get(option) and option not in passed:
            yield f"{name} has no flag for {option}"
    if settings.engine_args and not server.takes_more:
        yield f"{name} takes no engine_args: write them into the command"


def server_command(settings: Generate, place: Mapping[str, str]) -> tuple[str, ...]:
    """The command line of one replica's server; ``place`` has the values that only its worker knows."""
    server = server_of(settings)
    values = {**command_values(settings), **place}
    command = [part.format_map(values) for part in server.command]
    for setting, flag in server.flags.items():
        value = values[setting]
        if isinstance(flag, tuple):
            command += [text for text in (flag[0] if value else flag[1],) if text]
        elif value is not None:
            command += [flag, str(value)]
    for name, value in settings.engine_args.items():
        command += _more(f"--{name.replace('_', '-')}", value)
    return tuple(command)


def _more(flag: str, value: object) -> list[str]:
    if value is True:
        return [flag]
    if value is False:
        return [f"--no-{flag[2:]}"]
    return [flag, value if isinstance(value, str) else json.dumps(value)]


def server_config(settings: Generate) -> str | None:
    """The text of the server's file; ``None`` where it has none. A key whose value is ``None`` is left out."""
    server = server_of(settings)
    return json.dumps(_filled(server.config, command_values(settings)), indent=1) if server.config else None


def _filled(value: object, values: Mapping[str, object]) -> object:
    if isinstance(value, dict):
        filled = {name: _filled(part, values) for name, part in value.items()}
        return {name: part for name, part in filled.items() if part is not None}
    word = _PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
    return values[word[1]] if word else value
