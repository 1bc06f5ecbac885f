"""Command lines of servers against golden files, and settings that a server would ignore."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import pytest

from pybench.model.servers import SERVERS, image_backend, server_command, server_config, server_reasons
from pybench.model.workloads.generate import Generate, ServerName
from pybench.model.workloads.traits import Reason

GOLDEN = Path(__file__).parents[1] / "golden" / "argv"
PLACE = {"python": "PYTHON", "stub": "STUB", "model_folder": "MODEL", "port": "8000", "config": "CONFIG"}


def settings(**changes: object) -> Generate:
    usual = {"backend": "server", "server": "vllm", "model": "llama-3.1-8b", "batch_size": 256, "prompt_tokens": 512}
    return Generate(**{**usual, "output_tokens": 128, **changes})  # type: ignore[arg-type]


def reasons(changes: dict[str, object], device: str = "cuda") -> list[Reason]:
    return list(server_reasons(settings(**changes), device))


@pytest.mark.parametrize("server", SERVERS)
def test_command_line(server: str) -> None:
    """Every setting that a server has a flag for is passed on; the file's content follows the command."""
    changes: dict[str, object] = {"tensor_parallel": 2, "seed": 7, "max_context_tokens": 2048, "concurrency": 64}
    if server != "stub":
        changes |= {"max_num_seqs": 512, "prefix_caching": True, "engine_args": {"stream_interval": 2}}
    given = settings(server=server, **changes)
    assert not list(server_reasons(given, "cuda"))
    text = "\n".join([*server_command(given, PLACE), server_config(given) or "", ""])
    path = GOLDEN / f"server_{server}.txt"
    if os.environ.get("PYBENCH_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_the_setting_names_every_entry() -> None:
    """A suite can give each, and no other."""
    assert set(get_args(ServerName)) == {*SERVERS}


def test_defaults_of_vllm() -> None:
    """False booleans have their flag or no flag; other settings are left to the server."""
    command = server_command(settings(), PLACE)
    assert "--no-enable-prefix-caching" in command
    assert not {"--enforce-eager", "--max-num-seqs", "--quantization"} & set(command)
    assert command[command.index("--max-model-len") + 1] == "640"


def test_arguments_become_flags() -> None:
    """Flags have their own names: booleans as vLLM writes them, tables as JSON."""
    more = {
        "async_scheduling": False,
        "enable_chunked_prefill": True,
        "block_size": 32,
        "compilation_config": {"a": 3},
    }
    assert server_command(settings(engine_args=more), PLACE)[-6:] == (
        *("--no-async-scheduling", "--enable-chunked-prefill", "--block-size", "32"),
        *("--compilation-config", '{"a": 3}'),
    )


def test_a_file_takes_the_arguments() -> None:
    """TensorRT-LLM's own names, in its file: graphs for the largest batch, padded."""
    config = json.loads(server_config(settings(server="trtllm", engine_args={"max_stats_len": 10})) or "")
    assert config["cuda_graph_config"] == {"enable_padding": True, "max_batch_size": 256}
    assert config["max_stats_len"] == 10


@pytest.mark.parametrize(
    ("changes", "kind", "facts"),
    [
        ({"engine_args": {"tensor_parallel_size": 4}}, "settings", ("engine_args.tensor_parallel_size:",)),
        ({"server": "trtllm", "engine_args": {"load_format": "auto"}}, "settings", ("engine_args.load_format:",)),
        ({"server": "trtllm", "enforce_eager": True}, "unsupported", ("server trtllm", "enforce_eager")),
        ({"server": "stub", "pipeline_parallel": 2}, "unsupported", ("server stub", "pipeline_parallel")),
        ({"server": None, "server_command": ["serve"]}, "settings", ("server_command", "{port}")),
        ({"server": None, "server_command": ["serve", "{port}", "{prot}"]}, "settings", ("server_command", "{prot}")),
        (
            {"server": None, "server_command": ["serve", "{port}"], "tensor_parallel": 2},
            *("unsupported", ("server_command", "tensor_parallel")),
        ),
        (
            {"server": None, "server_command": ["serve", "{port}"], "engine_args": {"a": 1}},
            *("settings", ("server_command", "engine_args")),
        ),
    ],
)
def test_what_a_server_can_not_honour(changes: dict[str, object], kind: str, facts: tuple[str, ...]) -> None:
    """It would be measured as something else."""
    ((found, text),) = reasons(changes)
    assert (found, [fact for fact in facts if fact not in text]) == (kind, [])


def test_a_cpu_has_the_stub_alone() -> None:
    """All others need GPUs."""
    refused = {name: [kind for kind, _ in reasons({"server": name}, "cpu")] for name in SERVERS}
    assert refused == {"vllm": ["device"], "sglang": ["device"], "trtllm": ["device"], "stub": []}


def test_a_server_runs_in_the_image_of_its_library() -> None:
    """An image of vLLM serves both its backend and its server."""
    assert image_backend(settings()) == "vllm"
    assert image_backend(settings(server="trtllm")) == "tensorrt_llm"
    assert image_backend(settings(server="stub")) == "server"
    assert image_backend(settings(backend="torch", server=None)) == "torch"
