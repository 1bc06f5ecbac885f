"""A first start of each image file before a run: as isolated as this host takes it, and the Python found inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from pybench.machine.command import CommandResult, run_command
from pybench.model.errors import MachineError
from pybench.run.engines.base import Argv, Launch
from pybench.run.engines.image_file_launcher import ImageFileLauncher
from pybench.run.engines.trial import python_version, trial_job

_Launcher = TypeVar("_Launcher", bound=ImageFileLauncher)

# What every worker needs; the engine brings the driver's library.
_PROBE = """
import ctypes, json, os, platform, sys
os.listdir("/pybench/stage")
with open("/pybench/exchange/probe", "w") as stream:
    stream.write("ok")
if os.environ["CUDA_VISIBLE_DEVICES"]:
    ctypes.CDLL("libcuda.so.1")
print(json.dumps({"python": platform.python_version(), "version": sys.version_info[:2]}))
"""
_OTHER_REMEDY = "pybench doctor lists what this machine lacks"
USER_NAMESPACES = (
    "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns)"
)


def tried(tries: Iterable[_Launcher], gpu_uuids: tuple[str, ...], remedies: Mapping[str, str]) -> _Launcher:
    """The first of ``tries`` in which each image starts, with the Python found inside.

    ``remedies`` are by a part of the engine's words. Raises ``MachineError`` with what the engine reports of the last.
    """
    refused = None
    for launcher in tries:
        results = [(image, _probe(launcher, image.backend, gpu_uuids)) for image in launcher.container.images]
        refused = next(((image, result) for image, result in results if not result.ok), None)
        if refused is None:
            images = tuple(replace(image, python=python_version(image, result)) for image, result in results)
            return replace(launcher, container=replace(launcher.container, images=images))
    assert refused is not None
    image, result = refused
    words = _words(result)
    remedy = next((remedy for part, remedy in remedies.items() if part in words), _OTHER_REMEDY)
    raise MachineError(f"{launcher.name} can't start a worker in image {image.name}: {words}; {remedy}")


def _words(result: CommandResult) -> str:
    """The reason: a hook's or a program's own line stands before enroot's last one."""
    lines = [line.strip().removeprefix("[ERROR] ") for line in result.error.splitlines() if line.strip()]
    useful = [line for line in lines if "exited with return code" not in line]
    return useful[-1] if useful else result.error_line


def _probe(launcher: ImageFileLauncher, backend: str, gpu_uuids: tuple[str, ...]) -> CommandResult:
    with trial_job(backend, gpu_uuids) as job:
        return run_command(_with_environment(replace(launcher, secrets=()), job))


def _with_environment(launcher: ImageFileLauncher, job: Launch) -> Argv:
    variables = (f"{name}={value}" for name, value in launcher.environment(job).items())
    return ("env", "-i", *variables, *launcher.start_argv(job, "-I", "-B", "-c", _PROBE))
