"""Start each image once before a run: as isolated as this host takes it, and see what is inside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pybench.engines.base import Argv, Job
from pybench.engines.enroot.isolation import Isolation
from pybench.engines.enroot.launcher import EnrootLauncher
from pybench.engines.trial import python_version, trial_job
from pybench.machine.command import CommandResult, run_command
from pybench.model.errors import MachineError

# What every worker needs; the driver's library comes from enroot's hook.
_PROBE = """
import ctypes, json, os, platform, sys
os.listdir("/pybench/stage")
with open("/pybench/exchange/probe", "w") as stream:
    stream.write("ok")
if os.environ["CUDA_VISIBLE_DEVICES"]:
    ctypes.CDLL("libcuda.so.1")
print(json.dumps({"python": platform.python_version(), "version": sys.version_info[:2]}))
"""
_REMEDIES = {
    "user namespace": "allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
    "kernel.apparmor_restrict_unprivileged_userns)",
    "fuse": "load the kernel's module fuse and install squashfuse with fusermount3",
    "libcuda": "install libnvidia-container-tools and enroot's hook 98-nvidia.sh",
    "nvidia-container-cli": "install libnvidia-container-tools",
    "failed to execute": "an image needs a shell for enroot to start it",
}
_OTHER_REMEDY = "pybench doctor lists what this machine lacks"


def probed(launcher: EnrootLauncher, tries: Iterable[Isolation], gpu_uuids: tuple[str, ...]) -> EnrootLauncher:
    """The launcher with the first of ``tries`` in which each image starts, and the Python found inside.

    Raises ``MachineError`` with what enroot reports of the last one.
    """
    refused = None
    for isolation in tries:
        tried = replace(launcher, isolation=isolation)
        results = [(image, _probe(tried, image.backend, gpu_uuids)) for image in launcher.container.images]
        refused = next(((image, result) for image, result in results if not result.ok), None)
        if refused is None:
            images = tuple(replace(image, python=python_version(image, result)) for image, result in results)
            return replace(tried, container=replace(launcher.container, images=images))
    assert refused is not None
    image, result = refused
    words = _words(result)
    remedy = next((remedy for part, remedy in _REMEDIES.items() if part in words), _OTHER_REMEDY)
    raise MachineError(f"enroot can't start a worker in image {image.name}: {words}; {remedy}")


def _words(result: CommandResult) -> str:
    """The reason: a hook's or a program's own line stands before enroot's last one."""
    lines = [line.strip().removeprefix("[ERROR] ") for line in result.error.splitlines() if line.strip()]
    useful = [line for line in lines if "exited with return code" not in line]
    return useful[-1] if useful else result.error_line


def _probe(launcher: EnrootLauncher, backend: str, gpu_uuids: tuple[str, ...]) -> CommandResult:
    with trial_job(backend, gpu_uuids) as job:
        return run_command(_with_environment(replace(launcher, secrets=()), job))


def _with_environment(launcher: EnrootLauncher, job: Job) -> Argv:
    variables = (f"{name}={value}" for name, value in launcher.environment(job).items())
    return ("env", "-i", *variables, *launcher.start_argv(job, "-I", "-B", "-c", _PROBE))
