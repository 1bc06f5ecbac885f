"""The local launcher: pure argv and environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pybench.model.machine import Place
from pybench.run.engines.base import Launch
from pybench.run.engines.environment import recorded, tuning
from pybench.run.engines.local import Local

TUNED: dict[str, Any] = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "TRTLLM_ENABLE_PDL": "0",
}


def job(num_processes: int = 1, gpu_uuids: tuple[str, ...] = (), **environment: str) -> Launch:
    return Launch(
        stage=Path("/stage"),
        exchange=Path("/exchange"),
        backend="torch",
        num_processes=num_processes,
        places=(Place(gpu_uuids=gpu_uuids),),
        token="run/abc",
        host_environment=environment,
    )


def test_one_process_is_started_directly() -> None:
    """No torchrun for one rank: it would only add start-up time."""
    expected = ("/py", "-I", "-B", "/stage/pybench/worker/__main__.py", "/exchange")
    assert Local("/py").argv(job()) == expected


def test_a_relative_python_is_one_from_here() -> None:
    """Links are kept: a virtual environment's Python is one. A bare name is looked up on PATH."""
    assert Local(".venv/bin/python").argv(job())[0] == f"{Path.cwd()}/.venv/bin/python"
    assert Local("python3.12").argv(job())[0] == "python3.12"


def test_several_processes_go_through_the_workers_launcher() -> None:
    """The rank count is the only difference."""
    assert Local("/py").argv(job(4))[-2:] == ("--ranks", "4")


def test_environment_is_an_allow_list() -> None:
    """Tuning and library paths pass; whatever could steer a measurement from a shell does not."""
    environment = Local("/py").environment(job(PATH="/bin", PYTHONPATH="/x", SECRET="s", **TUNED))
    assert environment["PATH"] == "/bin"
    assert environment.items() >= TUNED.items()
    assert not {"PYTHONPATH", "SECRET"} & environment.keys()


def test_containers_get_tuning_without_secrets_and_paths() -> None:
    """An engine's key is no tuning, and a cache's folder is another one inside."""
    host = {**TUNED, "VLLM_API_KEY": "s", "VLLM_CACHE_ROOT": "/home/me/cache"}
    assert tuning(host) == TUNED


def test_gpus_are_named_by_uuid_whatever_the_shell_says() -> None:
    """An inherited CUDA_VISIBLE_DEVICES must not re-number the GPUs."""
    environment = Local("/py").environment(job(2, ("GPU-a", "GPU-b"), CUDA_VISIBLE_DEVICES="7"))
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert "OMP_NUM_THREADS" not in environment


def test_a_cpu_rank_gets_one_thread_and_no_gpu() -> None:
    """One rank is one core."""
    environment = Local("/py").environment(job(2, OMP_NUM_THREADS="16"))
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""


def test_a_secret_is_passed_on_only_when_asked_for() -> None:
    """A token begins like tuning does."""
    shell = job(HF_TOKEN="t0ken", HF_HOME="/models", AWS_KEY="s3cret")
    assert not {"HF_TOKEN", "AWS_KEY"} & Local("/py").environment(shell).keys()
    asked = Local("/py", secrets=("HF_TOKEN",)).environment(shell)
    assert (asked["HF_TOKEN"], asked["HF_HOME"]) == ("t0ken", "/models")
    assert "AWS_KEY" not in asked


def test_what_is_recorded_is_what_tunes_a_worker() -> None:
    """One function decides for the launch and for the record; paths stand in it, what only finds programs does not."""
    shell = {**TUNED, "PATH": "/bin", "VLLM_CACHE_ROOT": "/cache", "AWS_KEY": "s3cret", "HF_TOKEN": "t0ken"}
    launcher = Local("/py", secrets=("AWS_KEY",))
    tuned = launcher.tuning(shell)
    assert tuned == {**TUNED, "VLLM_CACHE_ROOT": "/cache", "AWS_KEY": "s3cret"}
    assert launcher.environment(job(**shell)).items() >= tuned.items()
    assert recorded(tuned, launcher.secrets)["AWS_KEY"] == "***"


def test_records_hold_no_credentials() -> None:
    """By parts of the name, and in URLs; a number of tokens is no secret."""
    values = {
        "NCCL_ALGO": "Ring",
        "HF_HUB_TOKEN": "t",
        "VLLM_MAX_TOKENS": "3",
        "TORCH_URL": "https://me:pw@x/y",
        "A": "b",
    }
    assert recorded(values, ("A",)) == {
        "A": "***",
        "HF_HUB_TOKEN": "***",
        "NCCL_ALGO": "Ring",
        "TORCH_URL": "https://***@x/y",
        "VLLM_MAX_TOKENS": "3",
    }
    assert recorded({"NCCL_DEBUG_FILE": "/tmp/caf\udce9"}) == {"NCCL_DEBUG_FILE": "/tmp/caf\\xe9"}


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "HF_HUB_TOKEN", "VLLM_API_KEY", "TRTLLM_API_KEY", "TORCH_SECRET", "NCCL_PASSWORD"]
)
def test_a_credential_reaches_no_worker_unless_named(name: str) -> None:
    """Whatever its beginning: neither in a container nor outside; a suite may name it."""
    variables: dict[str, Any] = {name: "s3cret", "VLLM_MAX_TOKENS": "5"}
    shell = job(**variables)
    assert name not in Local("/py").environment(shell)
    assert tuning(shell.host_environment) == {"VLLM_MAX_TOKENS": "5"}
    assert Local("/py", secrets=(name,)).environment(shell)[name] == "s3cret"
