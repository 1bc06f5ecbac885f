"""The engine apptainer: image files made from locked digests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from pybench.machine.command import run_command
from pybench.model.container import EngineFacts, Mount, Relaxation
from pybench.run.engines.base import Argv, Launch, engine_error
from pybench.run.engines.image_launcher import USER_NAMESPACES, ImageFileEngine, ImageFileLauncher, shown_gpus

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


def _tries(launcher: ApptainerLauncher, online: bool) -> Iterator[ApptainerLauncher]:
    """Without a network where apptainer can here, unless the suite requests it."""
    relaxations = (*_NEVER_BOUNDED, *launcher.container.relaxations)
    if not online:
        yield replace(launcher, offline=True, container=replace(launcher.container, relaxations=relaxations))
        relaxations = (*relaxations, _ONLINE)
    yield replace(launcher, offline=False, container=replace(launcher.container, relaxations=relaxations))


_CLIENT_NAMES = frozenset({"PATH", "USER", "TMPDIR", "XDG_RUNTIME_DIR"})
# Variables with this prefix are set inside, also under --cleanenv (apptainer user guide, "Environment and Metadata").
_INSIDE = "APPTAINERENV_"


@dataclass(frozen=True, kw_only=True)
class ApptainerLauncher(ImageFileLauncher):
    """Launcher of SIF files. Apptainer bounds neither pids nor /dev/shm and shows every GPU's device files."""

    GUARDED: ClassVar[bool] = False  # --pid: what is inside ends with its first process
    offline: bool = True

    def start_argv(self, job: Launch, *arguments: str) -> Argv:
        """``exec`` with the host's environment, home and current folder left out."""
        return (
            *("apptainer", "exec"),
            *(("--nv",) if job.gpu_uuids else ()),
            *("--cleanenv", "--contain", "--no-home", "--no-privs", "--pid", "--ipc"),
            *(("--net", "--network", "none") if self.offline else ()),
            *(part for mount in self.mounts(job) for part in ("--mount", _bind(*mount))),
            *("--pwd", "/tmp"),  # noqa: S108 - inside, private
            str(self.files[job.backend]),
            *(self.image(job).interpreter, *arguments),
        )

    def environment(self, job: Launch) -> dict[str, str]:
        """The client's few variables, and the worker's behind a prefix: nothing of it stands in the command line."""
        kept = {name: value for name, value in job.host_environment.items() if name in _CLIENT_NAMES}
        inside = {_INSIDE + name: value for name, value in self.inside(job).items()}
        return {**kept, **shown_gpus(job), **inside}


def build_argv(reference: str, file: Path) -> Argv:
    """Make an image file of ``repository@digest``."""
    return ("apptainer", "build", "--force", str(file), f"docker://{reference}")


def _bind(mount: Mount, is_writable: bool) -> str:
    parts = ("type=bind", f"source={mount.source}", f"destination={mount.target}", *(() if is_writable else ("ro",)))
    return ",".join(f'"{part}"' if "," in part else part for part in parts)


ENGINE = ImageFileEngine(
    "apptainer", "sif", examine, build_image, ApptainerLauncher, _tries, _REMEDIES, keeps_entrypoint=False
)
