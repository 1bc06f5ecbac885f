"""The engines' command lines against files that a person has read.

After a wanted change, write the files anew and read their diff: ``PYBENCH_UPDATE_GOLDEN=1 pytest tests/run/engines``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import pybench
from pybench.model.container import ContainerRequest, ContainerSetup, EngineFacts, ImageIdentity, Mount
from pybench.model.errors import UsageError
from pybench.model.machine import Place
from pybench.run.engines.apptainer.engine import ApptainerLauncher, build_argv
from pybench.run.engines.base import Launch
from pybench.run.engines.enroot.engine import NAMESPACES, EnrootLauncher, Isolation, import_argv
from pybench.run.engines.local import Local
from pybench.run.engines.oci.confinement import GpuOptions, cdi_options, confinement_for, node_options, toolkit_options
from pybench.run.engines.oci.launcher import INSPECT, REMOVE, STOP, OciLauncher

GOLDEN = Path(__file__).parents[2] / "golden" / "argv"
PACKAGE = f"{Path(pybench.__file__).parent.parent}/"
"""Files of pybench itself are named from there on."""
GPUS = ("GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000")
NODES = {GPUS[0]: "/dev/nvidia0", GPUS[1]: "/dev/nvidia3"}
IMAGE = ImageIdentity(
    backend="vllm",
    name="vllm-0.31.0",
    reference="docker.io/vllm/vllm-openai@sha256:a4a4c0437bf7",
    id="sha256:0f1e2d3c4b5a",
    digests=("sha256:a4a4c0437bf7",),
    platform="linux/amd64",
    labels={},
    python="3.12.3",
    interpreter="/usr/bin/python3",
    entrypoint="replace",
    pinned=True,
)
REQUEST = ContainerRequest(
    mounts=(Mount(source="/srv/data", target="/data"),), environment={"NCCL_DEBUG": "WARN"}, secrets=("HF_TOKEN",)
)
SHELL = {
    "PATH": "/usr/bin",
    "HOME": "/home/me",
    "DOCKER_HOST": "unix:///run/docker.sock",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_TOPO_FILE": "/home/me/topology.xml",
    "NCCL_TWO": "a\nLD_PRELOAD=/x",
    "CUDA_VISIBLE_DEVICES": "7",
    "HF_TOKEN": "t0ken",
    "AWS_SECRET_ACCESS_KEY": "s3cret",
}


def job(gpus: tuple[str, ...] = GPUS, num_processes: int = 2) -> Launch:
    return Launch(
        stage=Path("/runs/R/worker"),
        exchange=Path("/runs/R/attempts/decode_backend=vllm,tensor_parallel=2.1/exchange"),
        backend="vllm",
        num_processes=num_processes,
        places=(Place(gpu_uuids=gpus),),
        token="R/0123456789abcdef",
        host_environment=SHELL,
        compiled=Path("/tmp/pybench-R-compiled/vllm"),
    )


def setup(engine: str, image: ImageIdentity = IMAGE) -> ContainerSetup:
    return ContainerSetup(
        engine=engine,
        engine_version="1",
        runtime="runc",
        rootless=False,
        lock="containers/images.toml",
        images=(image,),
        mounts=REQUEST.mounts,
        relaxations=(),
    )


def oci(
    facts: EngineFacts, way: GpuOptions, request: ContainerRequest = REQUEST, image: ImageIdentity = IMAGE, uid: int = 0
) -> OciLauncher:
    return OciLauncher(
        container=setup(facts.name, image),
        confinement=confinement_for(request, facts, (uid, uid)),
        gpu_options=way,
        runner="boot/4026531836/42/1000",
        environment_of_suite=request.environment,
        secrets=request.secrets,
        models=Path("/home/me/.cache/huggingface/hub"),
    )


DOCKER = EngineFacts(name="docker", version="28.0")
PODMAN = EngineFacts(name="podman", version="5.0")
LAUNCHERS: dict[str, tuple[OciLauncher | ApptainerLauncher | EnrootLauncher | Local, Launch]] = {
    "docker_toolkit": (oci(DOCKER, toolkit_options), job()),
    "docker_cdi": (oci(DOCKER, cdi_options), job()),
    "docker_cpu_user": (oci(DOCKER, toolkit_options, uid=1000), job((), 1)),
    "docker_entrypoint_kept": (
        oci(DOCKER, cdi_options, image=replace(IMAGE, entrypoint="keep")),
        job(GPUS[:1], 1),
    ),
    "docker_relaxed": (
        oci(DOCKER, cdi_options, ContainerRequest(relax=("network", "writable_root", "root_user"))),
        job(GPUS[:1], 1),
    ),
    "podman_cdi": (oci(PODMAN, cdi_options), job()),
    "podman_nodes": (oci(PODMAN, partial(node_options, nodes=NODES)), job()),
    "podman_rootless": (oci(replace(PODMAN, rootless=True), cdi_options, uid=1000), job((), 1)),
    "apptainer": (
        ApptainerLauncher(
            container=setup("apptainer"),
            files={"vllm": Path("/cache/sif/sha256-a4a4c0437bf7.sif")},
            environment_of_suite=REQUEST.environment,
            secrets=REQUEST.secrets,
        ),
        job(),
    ),
    "apptainer_cpu_online": (
        ApptainerLauncher(container=setup("apptainer"), files={"vllm": Path("/cache/sif/a,b.sif")}, offline=False),
        job((), 1),
    ),
    "enroot": (
        EnrootLauncher(
            container=setup("enroot"),
            files={"vllm": Path("/cache/sqsh/sha256-a4a4c0437bf7.sqsh")},
            isolation=Isolation(NAMESPACES),
            environment_of_suite=REQUEST.environment,
            secrets=REQUEST.secrets,
        ),
        job(),
    ),
    "enroot_entrypoint_kept": (
        EnrootLauncher(
            container=setup("enroot", replace(IMAGE, entrypoint="keep")),
            files={"vllm": Path("/cache/sqsh/a.sqsh")},
            isolation=Isolation((), devices=False),
        ),
        job((), 1),
    ),
    "none": (Local("/usr/bin/python3"), job()),
}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_command_line_and_environment(name: str) -> None:
    """One argument a line, then the environments of client and worker."""
    launcher, task = LAUNCHERS[name]
    ours = [word.removeprefix(PACKAGE) for word in launcher.argv(task)]
    parts = [*ours, "", "# client", *_lines(launcher.environment(task))]
    if isinstance(launcher, OciLauncher):
        parts += ["", "# worker", *launcher.environment_text(task).splitlines()]
        for words in (INSPECT, STOP, REMOVE):
            parts += ["", " ".join(launcher.container_argv(task, *words))]
    actual = "\n".join(parts) + "\n"
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("PYBENCH_UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(actual, encoding="utf-8")
    assert file.read_text(encoding="utf-8") == actual


@pytest.mark.parametrize("name", LAUNCHERS)
def test_no_secret_and_no_stranger_in_a_command_line(name: str) -> None:
    """The record and every user's process list show argv."""
    launcher, task = LAUNCHERS[name]
    line = "\n".join(launcher.argv(task))
    assert not [value for value in ("t0ken", "s3cret", "LD_PRELOAD") if value in line]
    assert "AWS_SECRET_ACCESS_KEY" not in launcher.environment(task)


def test_an_image_file_is_made_from_a_digest() -> None:
    """Never from a tag."""
    assert build_argv("docker.io/vllm/vllm-openai@sha256:ab", Path("/c/x.new")) == (
        *("apptainer", "build", "--force", "/c/x.new", "docker://docker.io/vllm/vllm-openai@sha256:ab"),
    )


@pytest.mark.parametrize(
    ("repository", "uri", "plain"),
    [
        ("docker.io/vllm/vllm-openai", "docker://registry-1.docker.io#vllm/vllm-openai@sha256:ab", "n"),
        ("nvcr.io/nvidia/pytorch", "docker://nvcr.io#nvidia/pytorch@sha256:ab", "n"),
        ("127.0.0.1:5000/a/b", "docker://127.0.0.1:5000#a/b@sha256:ab", "y"),
    ],
)
def test_enroot_imports_a_digest(repository: str, uri: str, plain: str) -> None:
    """From the host that serves docker's images, without a credential, and without TLS from this machine alone."""
    assert import_argv(f"{repository}@sha256:ab", Path("/c/x.blobs"), Path("/t/y"), Path("/c/x.new")) == (
        *("env", "ENROOT_CACHE_PATH=/c/x.blobs", "ENROOT_TEMP_PATH=/t/y", f"ENROOT_ALLOW_HTTP={plain}"),
        *("enroot", "import", "--output", "/c/x.new", uri),
    )


@pytest.mark.parametrize("folder", ["/runs/a b", "/runs/a:b", "/runs/a\\b"])
def test_enroot_refuses_a_folder_that_it_would_split(folder: str) -> None:
    """A mount's parts are apart by colons."""
    launcher, task = LAUNCHERS["enroot"]
    with pytest.raises(UsageError, match=r"enroot can't mount .*; choose another folder"):
        launcher.argv(replace(task, exchange=Path(folder)))


def test_a_gpu_without_a_device_node_is_an_error() -> None:
    """Better than another GPU."""
    with pytest.raises(KeyError, match="GPU-other"):
        node_options(("GPU-other",), NODES)


def _lines(environment: dict[str, str]) -> list[str]:
    return [f"{name}={value!r}" for name, value in sorted(environment.items())]
