"""The engine enroot: image files made from locked digests, started as child processes without a daemon."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pybench.machine.command import run_command
from pybench.model.container import EngineFacts, Mount, Relaxation
from pybench.model.errors import MachineError, UsageError
from pybench.model.machine import DoctorFinding
from pybench.run.engines.base import Argv, Launch, engine_error
from pybench.run.engines.image_launcher import USER_NAMESPACES, ImageFileEngine, ImageFileLauncher, shown_gpus
from pybench.run.engines.process import ATTEMPT_VARIABLE
from pybench.run.images.lock import this_platform
from pybench.run.images.registry import RegistryManifest, fetch_manifest, registry_tool

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


@dataclass(frozen=True)
class Isolation:
    """``namespaces`` of the worker's own, of ``NAMESPACES``; ``devices``: only devices of the point in /dev."""

    namespaces: tuple[str, ...]
    devices: bool = True


@dataclass(frozen=True, kw_only=True)
class EnrootLauncher(ImageFileLauncher):
    """Launcher of squashfs files. Enroot maps this user to itself, and bounds neither pids nor /dev/shm."""

    isolation: Isolation = Isolation(())

    def start_argv(self, job: Launch, *arguments: str) -> Argv:
        """``start`` without the image's entrypoint, this user's home and the client's environment.

        Only what runs inside carries the job's mark: ended with the worker, the process that serves the image's files
        would take them away while the worker writes its last event. It ends by itself as the container does.
        """
        image = self.image(job)
        variables = sorted(self.inside(job).items())
        named = (f"{name}={value}" if name in self._stated else name for name, value in variables)
        return (
            *("env", "-u", ATTEMPT_VARIABLE, "enroot", "start", *(f"--{name}" for name in self.isolation.namespaces)),
            *(("--rc", str(_ENTRYPOINT)) if image.entrypoint == "replace" else ()),
            *(part for value in (f"{ATTEMPT_VARIABLE}={job.token}", "HOME=/tmp", *named) for part in ("--env", value)),
            *(part for mount in self.mounts(job) for part in ("--mount", _bind(*mount))),
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


def import_argv(reference: str, blobs: Path, layers: Path, file: Path) -> Argv:
    """Write ``repository@digest`` to ``file``, through a cache ``blobs`` of its own and a scratch folder ``layers``."""
    registry, _, path = reference.partition("/")
    # Docker's short names of its registry are no hosts.
    served = "registry-1.docker.io" if registry in {"docker.io", "index.docker.io"} else registry
    # Plain HTTP is for this machine's own registry alone, as docker has it.
    plain = "y" if registry.split(":", maxsplit=1)[0] in {"localhost", "127.0.0.1"} else "n"
    settings = (f"ENROOT_CACHE_PATH={blobs}", f"ENROOT_TEMP_PATH={layers}", f"ENROOT_ALLOW_HTTP={plain}")
    return ("env", *settings, "enroot", "import", "--output", str(file), f"docker://{served}#{path}")


def _bind(mount: Mount, is_writable: bool) -> str:
    """Raises ``UsageError`` for a path that enroot can't take."""
    if _UNMOUNTABLE.search(mount.source):
        raise UsageError(
            f"enroot can't mount {mount.source}: a colon, a backslash or white space is in it; choose another folder"
        )
    return f"{mount.source}:{mount.target}:none:x-create=auto,{'bind,rw' if is_writable else 'rbind,ro'},nosuid,nodev"


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


# The first version that fetches an image by digest.
_OLDEST = (4, 0)
# Programs that enroot looks for only once it needs them.
_PROGRAMS = {"mksquashfs": "squashfs-tools", "unsquashfs": "squashfs-tools", "squashfuse": "squashfuse"}
_REMEDIES = {
    "user namespace": USER_NAMESPACES,
    "fuse": "load the kernel's module fuse and install squashfuse with fusermount3",
    "libcuda": "install libnvidia-container-tools and enroot's hook 98-nvidia.sh",
    "nvidia-container-cli": "install libnvidia-container-tools",
    "failed to execute": "an image needs a shell for enroot to start it",
}
_KERNEL = Path("/proc/sys")
_SWITCH, _SWITCH_OF_USERS = "user/max_user_namespaces", "kernel/unprivileged_userns_clone"
_QUOTED = re.compile(r"[\"'].*[\"']\s*")


def examine() -> EngineFacts:
    """What enroot and the programs that it needs print of themselves."""
    result = run_command(("enroot", "version"))
    version = result.out.strip() or None
    own_folder = "; let XDG_RUNTIME_DIR name a folder of yours" if "ermission denied" in result.error_line else ""
    reason = _defect(version) if result.ok else f"enroot does not work here: {result.error_line}{own_folder}"
    return EngineFacts(name="enroot", version=version, reason=reason, rootless=True)


def _findings() -> Iterator[DoctorFinding]:
    """Devices and namespaces of the host that a worker sees."""
    absent = [f"--{name}" for name in NAMESPACES if name not in available_namespaces()]
    seen = "own processes, network and /dev, each where this host lets enroot"
    if absent:
        seen = f"this version has no {', '.join(absent)}: workers see the host's processes and network"
    yield DoctorFinding.ok("enroot isolation", f"{seen}; pids are not bounded")


def _tries(launcher: EnrootLauncher, online: bool) -> Iterator[EnrootLauncher]:
    """As isolated as can be first. Raises ``UsageError`` for a variable that enroot would change."""
    for name, value in launcher.tuning(os.environ).items():  # enroot takes quotes around a value for its own
        if _QUOTED.fullmatch(value):
            raise UsageError(f"enroot takes the quotes off the value of {name}; remove them, or use another --engine")
    for isolation in isolations(online=online):
        kept = {*isolation.namespaces, *(("devices",) if isolation.devices else ()), *(("net",) if online else ())}
        forced = (*_NEVER_BOUNDED, *(shared for name, shared in _SHARED.items() if name not in kept))
        relaxations = (*forced, *launcher.container.relaxations)
        yield replace(launcher, isolation=isolation, container=replace(launcher.container, relaxations=relaxations))


def _defect(version: str | None) -> str | None:
    """Why it can't be used; ``None`` where nothing is known to stop it."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version or "")[:2])
    if numbers < _OLDEST:
        return f"enroot {version} can't fetch an image by digest: install 4.0 or newer"
    absent = [program for program in _PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"enroot needs {absent[0]}, which is not installed: install {_PROGRAMS[absent[0]]}"
    switches = (_SWITCH,) if os.geteuid() == 0 else (_SWITCH, _SWITCH_OF_USERS)
    off = [name for name in switches if (_KERNEL / name).exists() and (_KERNEL / name).read_text().strip() == "0"]
    if off:
        name = off[0].replace("/", ".")
        return f"enroot needs user namespaces, which {name} = 0 switches off: set it with sysctl"
    return None


# Unpacking 10 GB and writing them as one file takes minutes, on a slow disk many.
_IMPORT_LIMIT_S = 7200.0
_BLOB = re.compile(r"[0-9a-f]{64}")
_SCHEME = "sha256:"


def import_image(reference: str, file: Path) -> None:
    """Write the image ``repository@sha256:…`` to ``file``. Raises ``MachineError``.

    Enroot checks the digest of every blob, but not of the manifest. pybench checks the blobs by a manifest with the
    locked digest.
    """
    repository, _, digest = reference.rpartition("@")
    manifest = _manifest(repository, digest)
    # Enroot unpacks on a disk of this host, by a name that the next import to this file finds again.
    scratch = Path(os.environ.get("ENROOT_TEMP_PATH") or tempfile.gettempdir())
    unpacked = f"pybench-enroot-{os.getuid()}-{hashlib.sha256(os.fsencode(file)).hexdigest()[:16]}"
    blobs, layers = _emptied(file.with_suffix(".blobs")), _emptied(scratch / unpacked)
    try:
        argv = import_argv(f"{repository}@{manifest.digest}", blobs, layers, file)
        answer = run_command(argv, _IMPORT_LIMIT_S)
        if not answer.ok:
            words = answer.error_line.removeprefix("[ERROR] ")
            remedy = ""
            if "not permitted" in words:
                remedy = "install enroot+caps, or make the file on a host that shares this folder"
            elif lacking := re.search(r"Command not found: (\S+)", words):
                remedy = f"install {lacking[1]}"
            raise engine_error("enroot", str(file.parent), f"can't make an image file of {reference}", words, remedy)
        fetched = {f"{_SCHEME}{path.name}" for path in blobs.iterdir() if _BLOB.fullmatch(path.name)}
        if fetched != {manifest.config, *manifest.layers}:
            raise MachineError(
                f"enroot received another manifest as {reference} than the one with that digest; do not use the "
                "registry until that is explained"
            )
    finally:
        for folder in (blobs, layers):
            shutil.rmtree(folder, ignore_errors=True)


def _emptied(folder: Path) -> Path:
    """A new folder; one of a killed process is removed. Raises ``MachineError``."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise MachineError(f"{folder} is there and can't be removed; remove it") from None
    return folder


def _manifest(repository: str, digest: str) -> RegistryManifest:
    """The manifest of this platform, whose digest or whose index's digest is ``digest``."""
    tool = registry_tool()

    def served(digest: str) -> RegistryManifest:
        reference = f"{repository}@{digest}"
        manifest = fetch_manifest(tool, reference)
        if manifest.digest != digest:
            words = f"the registry serves {manifest.digest} as {reference}"
            raise MachineError(f"{words}; do not use it until that is explained")
        return manifest

    index = served(digest)
    if index.config is not None:
        return index
    if (child := index.platforms.get(this_platform())) is None:
        wanted = f"{repository}@{digest} has no image for {this_platform()}"
        raise MachineError(f"{wanted}; lock another: pybench images lock")
    return served(child)


ENGINE = ImageFileEngine(
    "enroot", "sqsh", examine, import_image, EnrootLauncher, _tries, _REMEDIES, keeps_entrypoint=True, report=_findings
)
