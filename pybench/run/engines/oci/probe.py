"""Start an image once before a run: relax what this machine refuses, and see what is inside."""

from __future__ import annotations

import resource
from dataclasses import replace

from pybench.machine.command import CommandResult, run_command
from pybench.model.container import EngineFacts, ImageIdentity
from pybench.model.errors import MachineError
from pybench.run.engines.base import engine_error
from pybench.run.engines.oci.confinement import after_refusal
from pybench.run.engines.oci.container import prepare_files
from pybench.run.engines.oci.gpu_access import CDI_COMMAND
from pybench.run.engines.oci.launcher import OciLauncher
from pybench.run.engines.trial import python_version, trial_job

# Every relaxation that a machine may force takes one more try: four limits that may take some halvings, and the rest.
_MAX_TRIES = 24
_LIMITS = {
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "memlock": resource.RLIMIT_MEMLOCK,
    "stack": resource.RLIMIT_STACK,
}
# What every worker needs, tried by the image's own Python before anything is measured.
_PROBE = """
import json, os, platform, sys
os.listdir("/pybench/stage")
with open("/pybench/exchange/probe", "w") as stream:
    stream.write("ok")
print(json.dumps({"python": platform.python_version(), "version": sys.version_info[:2]}))
"""


def probed(launcher: OciLauncher, facts: EngineFacts, gpu_uuids: tuple[str, ...]) -> OciLauncher:
    """Start each image once with its GPUs; relax what this machine refuses, and record the Python found inside.

    GPUs take part because their set-up may need what a container without them doesn't: a root that can be written.
    """
    images = []
    for image in launcher.container.images:
        launcher, result = _started(launcher, facts, image, gpu_uuids)
        images.append(replace(image, python=python_version(image, result)))
    setup = replace(launcher.container, images=tuple(images), relaxations=launcher.confinement.relaxations)
    return replace(launcher, container=setup)


def _started(
    launcher: OciLauncher, facts: EngineFacts, image: ImageIdentity, gpu_uuids: tuple[str, ...]
) -> tuple[OciLauncher, CommandResult]:
    hard_limits = {name: resource.getrlimit(number)[1] for name, number in _LIMITS.items()}
    for _ in range(_MAX_TRIES):
        result = _probe(launcher, image.backend, gpu_uuids)
        if result.ok:
            return launcher, result
        relaxed = after_refusal(launcher.confinement, result.error_line, hard_limits, facts)
        if relaxed is None:
            break
        launcher = replace(launcher, confinement=relaxed)
    failed = f"can't start a worker in image {image.name}"
    raise engine_error(launcher.name, facts.data_root, failed, result.error_line, _remedy(image, result.error_line))


def _remedy(image: ImageIdentity, complaint: str) -> str:
    """What to do about a refusal; an image may keep its Python, or the root folder, from users other than root."""
    if "permission denied" in complaint.lower():
        opened = f"let all users reach {image.interpreter} in the image"
        return f'{opened}, or set relax = ["root_user"] in the suite\'s [container]'
    return "pybench doctor lists what this machine lacks"


def _probe(launcher: OciLauncher, backend: str, gpu_uuids: tuple[str, ...]) -> CommandResult:
    with trial_job(backend, gpu_uuids) as job:
        prepare_files(launcher, job)
        try:
            return run_command(launcher.run_argv(job, "-I", "-B", "-c", _PROBE))
        except KeyError as error:
            message = (
                f"{launcher.name} can't be given GPU {error}: it has no device file, and no CDI specification names it"
            )
            raise MachineError(f"{message}; {CDI_COMMAND}") from None
        finally:
            run_command(launcher.remove_argv(job), outlives=True)
