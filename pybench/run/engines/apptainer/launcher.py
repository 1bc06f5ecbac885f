"""Starts workers in apptainer: an unprivileged child process with an image file, no daemon and nothing to remove."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pybench.model.container import Mount
from pybench.run.engines.base import Argv, Launch
from pybench.run.engines.image_file_launcher import ImageFileLauncher, shown_gpus
from pybench.run.engines.image_launcher import STAGE

_CLIENT_NAMES = frozenset({"PATH", "USER", "TMPDIR", "XDG_RUNTIME_DIR"})
# Variables with this prefix are set inside, also under --cleanenv (apptainer user guide, "Environment and Metadata").
_INSIDE = "APPTAINERENV_"


@dataclass(frozen=True, kw_only=True)
class ApptainerLauncher(ImageFileLauncher):
    """Launcher of one run, whose image files are SIF files.

    Apptainer maps this user to itself and grants no capability; it bounds neither pids nor /dev/shm, shows the device
    files of every GPU, and shares the host's network unless ``offline``.
    """

    GUARDED: ClassVar[bool] = False  # --pid: what is inside ends with its first process
    offline: bool = True

    def start_argv(self, job: Launch, *arguments: str) -> Argv:
        """``exec`` with the host's environment, home and current folder left out."""
        ours = Mount(source=str(job.stage), target=str(STAGE))
        return (
            *("apptainer", "exec"),
            *(("--nv",) if job.gpu_uuids else ()),
            *("--cleanenv", "--contain", "--no-home", "--no-privs", "--pid", "--ipc"),
            *(("--net", "--network", "none") if self.offline else ()),
            *(part for mount in (ours, *self.container.mounts) for part in ("--mount", _bind(mount, read_only=True))),
            *(part for mount in self.writable(job) for part in ("--mount", _bind(mount, read_only=False))),
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


def _bind(mount: Mount, *, read_only: bool) -> str:
    parts = ("type=bind", f"source={mount.source}", f"destination={mount.target}", *(("ro",) if read_only else ()))
    return ",".join(f'"{part}"' if "," in part else part for part in parts)
