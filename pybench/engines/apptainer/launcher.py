"""Starts workers in apptainer: an unprivileged child process with an image file, no daemon and nothing to remove."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pybench.engines.base import Argv, Job
from pybench.engines.environment import fixed
from pybench.engines.image_launcher import EXCHANGE, STAGE, ImageLauncher
from pybench.engines.process import WorkerProcess, end_marked
from pybench.model.container import ContainerRun, Mount
from pybench.model.wire import Failure

_CLIENT_NAMES = frozenset({"PATH", "USER", "TMPDIR", "XDG_RUNTIME_DIR"})
# Variables with this prefix are set inside, also under --cleanenv (apptainer user guide, "Environment and Metadata").
_INSIDE = "APPTAINERENV_"


@dataclass(frozen=True, kw_only=True)
class ApptainerLauncher(ImageLauncher):
    """Launcher of one run. An image's id is the digest of its SIF file, ``files`` maps each backend to its file.

    Apptainer maps this user to itself and grants no capability; it bounds neither pids nor /dev/shm, shows the device
    files of every GPU, and shares the host's network unless ``offline``, which an administrator must allow.
    """

    files: Mapping[str, Path]
    offline: bool = True

    def argv(self, job: Job) -> Argv:
        """``exec`` with the host's environment, home and current folder left out."""
        ours = Mount(source=str(job.stage), target=str(STAGE))
        return (
            *("apptainer", "exec"),
            *(("--nv",) if job.gpu_uuids else ()),
            *("--cleanenv", "--contain", "--no-home", "--no-privs", "--pid", "--ipc"),
            *(("--net", "--network", "none") if self.offline else ()),
            *(part for mount in (ours, *self.container.mounts) for part in ("--mount", _bind(mount, read_only=True))),
            *("--mount", _bind(Mount(source=str(job.exchange), target=str(EXCHANGE)), read_only=False)),
            *("--pwd", "/tmp"),  # noqa: S108 - inside, private
            str(self.files[job.backend]),
            *(self.image(job).interpreter, *self.worker_arguments(job)),
        )

    def start(self, job: Job, log: Path) -> WorkerProcess:
        """Start the worker as a child of this process. Raises ``OSError``."""
        return WorkerProcess(self.argv(job), self.environment(job), log, job.token)

    def verify(self, container: ContainerRun | None, job: Job, log: Path) -> Failure | None:
        """Nothing to read back: the image is the file that was named, which apptainer opens itself."""
        del container, job, log
        return None

    def remove_leftovers(self, run_mark: str) -> None:
        """End workers of a killed runner; nothing else stays of them."""
        end_marked(f"{run_mark}/")

    def environment(self, job: Job) -> dict[str, str]:
        """The client's few variables, and the worker's behind a prefix: nothing of it stands in the command line."""
        kept = {name: value for name, value in job.host_environment.items() if name in _CLIENT_NAMES}
        inside = {
            **self.variables(job),
            **fixed(job.gpu_uuids),
            **{name: job.host_environment[name] for name in self.secrets},
        }
        # Where an administrator has apptainer use nvidia-container-cli, it reads GPUs from the client's environment.
        kept["NVIDIA_VISIBLE_DEVICES"] = ",".join(job.gpu_uuids) or "void"
        return {**kept, **{_INSIDE + name: value for name, value in inside.items()}}


def build_argv(reference: str, file: Path) -> Argv:
    """Make an image file of ``repository@digest``."""
    return ("apptainer", "build", "--force", str(file), f"docker://{reference}")


def _bind(mount: Mount, *, read_only: bool) -> str:
    parts = ("type=bind", f"source={mount.source}", f"destination={mount.target}", *(("ro",) if read_only else ()))
    return ",".join(f'"{part}"' if "," in part else part for part in parts)
