"""What a container may: its confinement is tight, every relaxation recorded, and its GPUs are named by UUID."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pybench.machine.command import run_command
from pybench.model.container import ContainerRequest, EngineFacts, Relaxation

_GIB = 2**30
NOBODY = "65534:65534"
UNLIMITED = "-1:-1"
_STACK_BYTES = 2**26
# Below this a worker can't start its threads; such a machine's limits must be raised by its owner.
_LEAST_LIMIT = 256
# The kernel's numbers of the limits an engine may fail to set: include/uapi/asm-generic/resource.h
_RLIMITS = {"3": "stack", "6": "nproc", "7": "nofile", "8": "memlock"}


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """Rights and limits of a container. The defaults are the tightest that NCCL works in.

    ``shm_bytes`` and ``tmp_bytes`` bound the private /dev/shm and /tmp (memory is taken as they fill); ``ulimits`` are
    soft and hard values by name; ``engine_options`` come before the engine's subcommand, ``run_options`` after ``run``.
    """

    user: str = NOBODY
    host_network: bool = False
    read_only_root: bool = True
    pids_limit: int | None = 8192
    shm_bytes: int = 8 * _GIB
    tmp_bytes: int = 16 * _GIB
    ulimits: Mapping[str, str] = field(
        default_factory=lambda: {"memlock": UNLIMITED, "stack": f"{_STACK_BYTES}:{_STACK_BYTES}"}
    )
    engine_options: tuple[str, ...] = ()
    run_options: tuple[str, ...] = ()
    relaxations: tuple[Relaxation, ...] = ()

    def options(self) -> tuple[str, ...]:
        """Options of docker's and podman's ``run``."""
        return (
            *self.run_options,
            *("--network", "host" if self.host_network else "none"),
            *(("--read-only",) if self.read_only_root else ()),
            *("--tmpfs", f"/tmp:rw,exec,nosuid,nodev,size={self.tmp_bytes},mode=1777"),  # noqa: S108 - inside, private
            *("--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges"),
            *("--user", self.user),
            *(("--pids-limit", str(self.pids_limit)) if self.pids_limit is not None else ()),
            *("--ipc", "private"),
            *("--shm-size", str(self.shm_bytes)),
            *(part for name, value in self.ulimits.items() for part in ("--ulimit", f"{name}={value}")),
        )

    def relaxed(self, name: str, reason: str, **changes: object) -> Confinement:
        """Return a copy with a relaxation, which is recorded."""
        relaxation = Relaxation(name=name, reason=reason)
        return dataclasses.replace(self, relaxations=(*self.relaxations, relaxation), **changes)  # type: ignore[arg-type]


def confinement_for(request: ContainerRequest, engine: EngineFacts, host_ids: tuple[int, int]) -> Confinement:
    """Tightest confinement for ``request``; the user inside is this one (``host_ids``), nobody for root."""
    uid, gid = host_ids
    confinement = Confinement(user=NOBODY if uid == 0 else f"{uid}:{gid}")
    if engine.name == "podman" and engine.rootless:
        confinement = dataclasses.replace(confinement, run_options=("--userns", "keep-id"))
    changes: dict[str, dict[str, object]] = {
        "network": {"host_network": True},
        "writable_root": {"read_only_root": False},
        "root_user": {"user": "0:0"},
    }
    for name in request.relax:
        confinement = confinement.relaxed(name, "the suite requests it", **changes[name])
    return confinement


def after_refusal(
    before: Confinement, complaint: str, hard_limits: Mapping[str, int], engine: EngineFacts
) -> Confinement | None:
    """What to try after an engine refused to start a container so confined, ``None`` when nothing is left to try.

    ``hard_limits`` are this process's own by name, -1 for none: a machine that refuses more may grant these.
    """
    limit = None  # that runc (by number) or crun (by name) could not set
    if match := re.search(r"setting rlimit type (\d+)", complaint):
        limit = _RLIMITS.get(match[1])
    elif match := re.search(r"setrlimit [`'\"]?RLIMIT_([A-Z]+)", complaint):
        limit = match[1].lower()
    if limit is not None and limit in hard_limits:
        return _lower(before, limit, hard_limits[limit])
    if re.search("read-only file system", complaint, re.IGNORECASE) and before.read_only_root:
        return before.relaxed("writable_root", complaint, read_only_root=False)
    if engine.name == "podman" and re.search("systemd|dbus", complaint, re.IGNORECASE):
        return _with_option(before, "--cgroup-manager", "cgroupfs", complaint)
    if "pids" in complaint and before.pids_limit is not None:
        return before.relaxed("pids_limit", complaint, pids_limit=None)
    others = [name for name in engine.runtimes if name != engine.runtime]
    if engine.name == "podman" and others and re.search("crun|runc|cgroup|OCI", complaint):
        return _with_option(before, "--runtime", others[0], complaint)
    return None


def _lower(before: Confinement, limit: str, hard: int) -> Confinement | None:
    """Request what this process has, then less: an engine may have lower limits than its caller."""
    tried = int(before.ulimits.get(limit, UNLIMITED).partition(":")[0])
    value = hard if tried == -1 or tried > hard else tried // 2
    if value < _LEAST_LIMIT:
        return None
    kept = tuple(done for done in before.relaxations if done.name != f"ulimit_{limit}")
    loosened = dataclasses.replace(before, relaxations=kept)
    reason = f"this machine allows no more than {value}"
    return loosened.relaxed(f"ulimit_{limit}", reason, ulimits={**before.ulimits, limit: f"{value}:{value}"})


def _with_option(before: Confinement, option: str, value: str, complaint: str) -> Confinement | None:
    if option in before.engine_options:
        return None
    name = option.removeprefix("--").replace("-", "_")
    return before.relaxed(name, complaint, engine_options=(*before.engine_options, option, value))


# Control nodes that CUDA needs beside each GPU's own; nvidia-uvm-tools is for profilers only.
_CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")

GpuOptions = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Options of docker's and podman's ``run`` by which GPUs get into a container, from their UUIDs."""


def cdi_options(uuids: tuple[str, ...]) -> tuple[str, ...]:
    """Through the container device interface."""
    return tuple(part for uuid in uuids for part in ("--device", f"nvidia.com/gpu={uuid}"))


def toolkit_options(uuids: tuple[str, ...]) -> tuple[str, ...]:
    """Through docker's ``--gpus``, whose value is itself a quoted line of comma-separated values."""
    return ("--gpus", f'"device={",".join(uuids)}"') if uuids else ()


def node_options(uuids: tuple[str, ...], nodes: Mapping[str, str]) -> tuple[str, ...]:
    """By device files, which ``nodes`` has by UUID: the driver's libraries must be in the image or mounted.

    Raises ``KeyError`` for a GPU that has none.
    """
    files = (*(nodes[uuid] for uuid in uuids), *_CONTROL_NODES) if uuids else ()
    return tuple(part for file in files for part in ("--device", file))


# Where the container device interface keeps its specifications (CDI specification, section "Location").
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
CDI_COMMAND = "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
"""Writes a specification that names GPUs by UUID."""
# Older toolkits name devices by index unless configured otherwise; an index does not identify a GPU.
_CDI_UUID = re.compile(r'"?name"?:\s*"?GPU-')


def has_cdi(folders: tuple[str, ...] = _CDI_FOLDERS) -> bool:
    """Whether a CDI specification names NVIDIA GPUs by UUID."""
    files = [path for folder in folders for path in Path(folder).glob("*") if path.suffix in {".json", ".yaml", ".yml"}]
    return any("nvidia.com/gpu" in text and _CDI_UUID.search(text) for text in map(_text, files))


def toolkit_version() -> tuple[int, ...] | None:
    """Version of the NVIDIA Container Toolkit, ``None`` without one."""
    result = run_command(("nvidia-ctk", "--version"))
    match = re.search(r"version (\d+(?:\.\d+)+)", result.out)
    return tuple(map(int, match[1].split("."))) if result.ok and match else None


def device_nodes(proc: Path = Path("/proc/driver/nvidia/gpus")) -> dict[str, str]:
    """Device node of each GPU by UUID, for engines that have no NVIDIA integration."""
    texts = [_text(path) for path in sorted(proc.glob("*/information"))]
    pairs = [(re.search(r"GPU UUID:\s*(\S+)", t), re.search(r"Device Minor:\s*(\d+)", t)) for t in texts]
    return {uuid[1]: f"/dev/nvidia{minor[1]}" for uuid, minor in pairs if uuid and minor}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
