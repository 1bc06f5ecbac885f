"""Starts workers in enroot: an unprivileged child process on an image file, no daemon and nothing to remove."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pybench.machine.command import run_command
from pybench.model.container import Mount, Relaxation
from pybench.model.errors import UsageError
from pybench.run.engines.base import Argv, Launch
from pybench.run.engines.image_launcher import STAGE, ImageFileLauncher, shown_gpus
from pybench.run.engines.process import ATTEMPT_VARIABLE

# Where enroot keeps its things, how it mounts an image, and which InfiniBand cards its hook 99-mellanox shows.
_CLIENT_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "TMPDIR", "MELLANOX_VISIBLE_DEVICES", "ENROOT_NATIVE_OVERLAYFS"),
        *(f"XDG_{name}" for name in ("RUNTIME_DIR", "DATA_HOME", "CONFIG_HOME", "CACHE_HOME")),
        *(f"ENROOT_{name}_PATH" for name in ("RUNTIME", "DATA", "CONFIG", "CACHE", "TEMP")),
    }
)
# Variables that override an administrator's enroot.conf.
_CLIENT_OFF = {
    f"ENROOT_{name}": "n"
    for name in (
        *("ALLOW_SUPERUSER", "LOGIN_SHELL", "MOUNT_HOME", "REMAP_ROOT", "ROOTFS_WRITABLE"),
        *("UNSHARE_IPC", "UNSHARE_NET", "UNSHARE_PID", "UNSHARE_UTS"),
    )
}
_ENTRYPOINT = Path(__file__).with_name("entrypoint.sh")
# Enroot separates a mount's fields by colons, and its table of mounts by white space.
_UNMOUNTABLE = re.compile(r"[\s:\\]")


@dataclass(frozen=True, kw_only=True)
class EnrootLauncher(ImageFileLauncher):
    """Launcher of squashfs files. Enroot maps this user to itself, and bounds neither pids nor /dev/shm."""

    isolation: Isolation

    def start_argv(self, job: Launch, *arguments: str) -> Argv:
        """``start`` without the image's entrypoint, this user's home and the client's environment.

        Only what runs inside carries the job's mark: ended with the worker, the process that serves the image's files
        would take them away while the worker writes its last event. It ends by itself as the container does.
        """
        image = self.image(job)
        ours = Mount(source=str(job.stage), target=str(STAGE))
        return (
            *("env", "-u", ATTEMPT_VARIABLE, "enroot", "start", *self.isolation.options),
            *(("--rc", str(_ENTRYPOINT)) if image.entrypoint == "replace" else ()),
            *(part for value in self._named(job) for part in ("--env", value)),
            *(part for mount in (ours, *self.container.mounts) for part in ("--mount", _bind(mount, "rbind,ro"))),
            *(part for mount in self.writable(job) for part in ("--mount", _bind(mount, "bind,rw"))),
            *(str(self.files[job.backend]), image.interpreter, *arguments),
        )

    def environment(self, job: Launch) -> dict[str, str]:
        """The client's few variables, and the worker's that ``--env`` names without a value."""
        client = {name: value for name, value in job.host_environment.items() if name in _CLIENT_NAMES}
        inside = {name: value for name, value in self.inside(job).items() if name not in self._stated}
        return {
            **inside,
            **client,
            **_CLIENT_OFF,
            "ENROOT_RESTRICT_DEV": "y" if self.isolation.devices else "n",  # --ipc restricts /dev by itself
            # Read by the hook 98-nvidia, before what the image sets.
            **shown_gpus(job),
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        }

    @property
    def _stated(self) -> frozenset[str]:
        """Variables of the suite have their values in argv: the client's environment lacks them."""
        return frozenset(self.environment_of_suite) - frozenset(self.secrets)

    def _named(self, job: Launch) -> tuple[str, ...]:
        inside = sorted(self.inside(job).items())
        named = (f"{name}={value}" if name in self._stated else name for name, value in inside)
        return (f"{ATTEMPT_VARIABLE}={job.token}", "HOME=/tmp", *named)


def import_argv(reference: str, blobs: Path, layers: Path, file: Path) -> Argv:
    """Write ``repository@digest`` to ``file``, through a cache ``blobs`` of its own and a scratch folder ``layers``."""
    registry, _, path = reference.partition("/")
    # Docker's short names of its registry are no hosts.
    served = "registry-1.docker.io" if registry in {"docker.io", "index.docker.io"} else registry
    # Plain HTTP is for this machine's own registry alone, as docker has it.
    plain = "y" if registry.split(":", maxsplit=1)[0] in {"localhost", "127.0.0.1"} else "n"
    settings = (f"ENROOT_CACHE_PATH={blobs}", f"ENROOT_TEMP_PATH={layers}", f"ENROOT_ALLOW_HTTP={plain}")
    return ("env", *settings, "enroot", "import", "--output", str(file), f"docker://{served}#{path}")


def _bind(mount: Mount, options: str) -> str:
    """Raises ``UsageError`` for a path that enroot can't take."""
    if _UNMOUNTABLE.search(mount.source):
        raise UsageError(
            f"enroot can't mount {mount.source}: a colon, a backslash or white space is in it; choose another folder"
        )
    return f"{mount.source}:{mount.target}:none:x-create=auto,{options},nosuid,nodev"


NAMESPACES = ("pid", "net", "ipc")
"""Options of ``enroot start`` since its version after 4.1.2."""
_SHARED = {
    "pid": Relaxation(name="host_pids", reason="enroot here has no namespace of processes"),
    "net": Relaxation(name="network", reason="enroot here has no namespace of the network"),
    "devices": Relaxation(name="gpu_files", reason="enroot here can't restrict /dev; CUDA gets the requested GPUs"),
}
_NEVER_BOUNDED = (
    Relaxation(name="pids_limit", reason="enroot bounds no pids"),
    Relaxation(name="shm_size", reason="enroot has no size for /dev/shm, which may be the host's"),
)


@dataclass(frozen=True)
class Isolation:
    """``namespaces`` of the worker's own, of ``NAMESPACES``; ``devices``: only devices of the point in /dev."""

    namespaces: tuple[str, ...]
    devices: bool = True

    @property
    def options(self) -> Argv:
        """Options of ``enroot start``."""
        return tuple(f"--{name}" for name in self.namespaces)

    def relaxations(self, *, online: bool) -> tuple[Relaxation, ...]:
        """In what workers are less confined than in other engines; ``online``: the suite requests the network."""
        kept = {*self.namespaces, *(("devices",) if self.devices else ()), *(("net",) if online else ())}
        return (*_NEVER_BOUNDED, *(shared for name, shared in _SHARED.items() if name not in kept))


def isolations(*, online: bool) -> tuple[Isolation, ...]:
    """What this enroot can be requested, the most isolated first; ``online`` workers share the host's network."""
    known = available_namespaces()
    wanted = tuple(name for name in known if not (online and name == "net"))
    tries = [
        Isolation(tuple(name for name in wanted if name not in without), devices="ipc" not in without)
        for without in ((), ("ipc",), ("net",), ("ipc", "net"), NAMESPACES)
    ]
    return tuple(dict.fromkeys(tries))


def available_namespaces() -> tuple[str, ...]:
    """Namespaces that the installed enroot has options for."""
    words = run_command(("enroot", "start", "--help")).out.split()
    return tuple(name for name in NAMESPACES if f"--{name}" in words)
