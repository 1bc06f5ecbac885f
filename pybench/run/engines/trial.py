"""A first start of an image before a run: the job that it is tried with, and the Python found inside."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pybench.machine.command import CommandResult, run_command
from pybench.machine.disk import disk_error
from pybench.model.container import ImageIdentity
from pybench.model.errors import MachineError
from pybench.model.host import OLDEST_PYTHON, Place
from pybench.run.engines.base import Launch
from pybench.run.engines.image_launcher import ImageFileLauncher


@contextmanager
def trial_job(backend: str, gpu_uuids: tuple[str, ...]) -> Iterator[Launch]:
    """A job of one process whose folders are there within. Raises ``MachineError`` where a disk takes none."""
    room = disk_error(Path(tempfile.gettempdir()), "", " run the same command again")
    with room, tempfile.TemporaryDirectory(prefix="pybench-") as scratch:
        folder = Path(scratch)
        for name in ("stage", "exchange"):
            (folder / name).mkdir(mode=0o755)
        yield Launch(
            stage=folder / "stage",
            exchange=folder / "exchange",
            backend=backend,
            num_processes=1,
            places=(Place(gpu_uuids=gpu_uuids),),
            token=f"probe/{secrets.token_hex(8)}",
            host_environment=dict(os.environ),
        )


def python_version(image: ImageIdentity, result: CommandResult) -> str:
    """As the tried image printed it. Raises ``MachineError`` for one that is too old for the worker."""
    found = json.loads(result.out.splitlines()[-1])
    if tuple(found["version"]) < OLDEST_PYTHON:
        raise MachineError(f"image {image.name} has Python {found['python']}; the worker needs 3.10 or newer")
    return str(found["python"])


_Launcher = TypeVar("_Launcher", bound=ImageFileLauncher)

# What every worker needs, tried by the image's own Python before anything is measured.
PROBE = """
import json, os, platform, sys
os.listdir("/pybench/stage")
with open("/pybench/exchange/probe", "w") as stream:
    stream.write("ok")
print(json.dumps({"python": platform.python_version(), "version": sys.version_info[:2]}))
"""
# An engine of image files brings the driver's library.
_WITH_DRIVER = PROBE + 'import ctypes; os.environ["CUDA_VISIBLE_DEVICES"] and ctypes.CDLL("libcuda.so.1")'
OTHER_REMEDY = "pybench doctor lists what this machine lacks"
USER_NAMESPACES = (
    "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns)"
)


def tried(tries: Iterable[_Launcher], gpu_uuids: tuple[str, ...], remedies: Mapping[str, str]) -> _Launcher:
    """The first of ``tries`` to start each image; ``remedies`` by the engine's words. Raises ``MachineError``."""
    refused = None
    for launcher in tries:
        results = [(image, _probe(launcher, image.backend, gpu_uuids)) for image in launcher.container.images]
        refused = next(((image, result) for image, result in results if not result.ok), None)
        if refused is None:
            images = tuple(replace(image, python=python_version(image, result)) for image, result in results)
            return replace(launcher, container=replace(launcher.container, images=images))
    assert refused is not None
    image, result = refused
    lines = [line.strip().removeprefix("[ERROR] ") for line in result.error.splitlines() if line.strip()]
    useful = [line for line in lines if "exited with return code" not in line]
    words = useful[-1] if useful else result.error_line
    remedy = next((remedy for part, remedy in remedies.items() if part in words), OTHER_REMEDY)
    raise MachineError(f"{launcher.name} can't start a worker in image {image.name}: {words}; {remedy}")


def _probe(launcher: ImageFileLauncher, backend: str, gpu_uuids: tuple[str, ...]) -> CommandResult:
    with trial_job(backend, gpu_uuids) as job:
        bare = replace(launcher, secrets=())
        variables = (f"{name}={value}" for name, value in bare.environment(job).items())
        return run_command(("env", "-i", *variables, *bare.start_argv(job, "-I", "-B", "-c", _WITH_DRIVER)))
