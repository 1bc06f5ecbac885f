"""The engine apptainer: image files made from locked digests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pybench.machine.command import run_command
from pybench.model.container import ContainerSetup, EngineFacts, Relaxation
from pybench.run.engines.apptainer.launcher import ApptainerLauncher, build_argv
from pybench.run.engines.error import engine_error
from pybench.run.engines.image_file_engine import Files, ImageFileEngine
from pybench.run.engines.image_file_trial import USER_NAMESPACES, tried
from pybench.run.engines.requirements import LaunchRequirements

# Turning an image of 10 GB into one file takes minutes, on a slow disk many.
_BUILD_LIMIT_S = 7200.0
_NEVER_BOUNDED = (
    Relaxation(name="pids_limit", reason="apptainer bounds no pids"),
    Relaxation(name="shm_size", reason="apptainer has no size for /dev/shm"),
    Relaxation(
        name="gpu_files", reason="--nv shows every GPU's device files; CUDA is restricted to the requested ones"
    ),
)
_ONLINE = Relaxation(name="network", reason="apptainer here gives this user no network namespace")
_REMEDIES = {
    "user namespace": USER_NAMESPACES,
    "squashfuse": "install squashfuse, or let apptainer mount images by the kernel",
    "libcuda": "install the NVIDIA driver's libraries and run ldconfig: apptainer's --nv finds them by it",
}


def examine() -> EngineFacts:
    """What apptainer prints of itself."""
    result = run_command(("apptainer", "--version"))
    if not result.ok:
        return EngineFacts(name="apptainer", version=None, reason=f"apptainer does not work here: {result.error_line}")
    version = result.out.split()[-1] if result.out.split() else None
    return EngineFacts(name="apptainer", version=version, rootless=True)


def build_image(reference: str, file: Path) -> None:
    """Write the image ``repository@sha256:…`` to ``file``. Raises ``MachineError``."""
    answer = run_command(build_argv(reference, file), _BUILD_LIMIT_S)
    if not answer.ok:
        failed = f"can't make an image file of {reference}"
        raise engine_error("apptainer", str(file.parent), failed, answer.error_line)


def _launcher(setup: ContainerSetup, files: Files, needs: LaunchRequirements) -> ApptainerLauncher:
    """One without a network where apptainer can here, unless the suite requests it. Raises ``MachineError``."""
    request = needs.request
    online = ApptainerLauncher(
        container=replace(setup, relaxations=(*_NEVER_BOUNDED, *setup.relaxations)),
        files=files,
        offline=False,
        environment_of_suite=request.environment,
        secrets=request.secrets,
    )
    if "network" in request.relax:
        return tried((online,), needs.gpu_uuids, _REMEDIES)
    forced = replace(online.container, relaxations=(*online.container.relaxations, _ONLINE))
    tries = (replace(online, offline=True), replace(online, container=forced))
    return tried(tries, needs.gpu_uuids, _REMEDIES)


ENGINE = ImageFileEngine("apptainer", "sif", examine, build_image, _launcher, honours_entrypoint=False)
