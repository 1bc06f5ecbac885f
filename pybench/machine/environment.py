"""Snapshot of this machine: hardware, driver, software."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Literal

from pybench import __version__
from pybench.core.gpu_models import machine_kind
from pybench.machine.command import run_command
from pybench.machine.gpus import find_gpus
from pybench.model.errors import is_machine_fault
from pybench.model.machine import RECORDED_PACKAGES, Machine, Network, nvls_of
from pybench.model.wire import monotonic_offset_ns

Fabric = Literal["nvlink", "pcie", "none"]


def fabric_of(topology: Sequence[Sequence[str]]) -> Fabric:
    """``nvlink`` only when every pair is joined by it: the slowest pair sets the pace. Without a pair ``none``."""
    ways = {way for i, row in enumerate(topology) for j, way in enumerate(row) if i != j}
    if not ways:
        return "none"
    return "nvlink" if all(way.startswith("NV") for way in ways) else "pcie"


# Whatever of these is installed is recorded: what computes, what communicates, what compiles.
_PACKAGES = (*("numpy", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-ml-py"), *RECORDED_PACKAGES)
_GIT_LIMIT_S = 10.0
_NO_COMMIT = "(initial)"


def snapshot(notify: Callable[[str], None] | None = None) -> Machine:
    """Look at this machine once; unknown is ``None``. ``notify`` shows a line while a slow driver starts."""
    inventory = find_gpus(notify=notify)
    names = tuple(gpu.name for gpu in inventory.gpus)
    commit, dirty = _git()
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    quota = cpu_quota()
    # An ARM processor has numbers instead of a name: its maker's, and the part's.
    maker, part = _field("/proc/cpuinfo", "CPU implementer"), _field("/proc/cpuinfo", "CPU part")
    arm = None if maker is None or part is None else f"ARM {maker} {part}"
    memory = _field("/proc/meminfo", "MemTotal")
    return Machine(
        kind=machine_kind(names),
        fabric=fabric_of(inventory.topology),
        gpu_count=len(inventory.gpus),
        gpu_names=names,
        gpu_vram_gib=tuple(gpu.vram_gib for gpu in inventory.gpus),
        gpus=inventory.gpus,
        gpu_reason=inventory.reason,
        gpu_faults=inventory.faults,
        gpu_remedy=inventory.remedy,
        topology=inventory.topology,
        driver=inventory.driver,
        cuda_driver=inventory.cuda_driver,
        cpu_model=_field("/proc/cpuinfo", "model name") or arm,
        cpu_cores=len(cpus) if quota is None else max(1, min(len(cpus), int(quota))),
        cpu_quota=quota,
        cpus=cpus,
        numa_nodes=len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        memory_bytes=int(memory.split()[0]) * 1024 if memory else None,
        kernel=platform.release(),
        operating_system=platform.freedesktop_os_release().get("PRETTY_NAME") if _has_os_release() else None,
        python=platform.python_version(),
        packages=dict(_packages()),
        git_commit=commit,
        git_dirty=dirty,
        nvls=nvls_of(inventory.gpus, os.environ),
    )


@cache
def _packages() -> Mapping[str, str]:
    """Versions of the packages that this process can import."""
    versions = {"pybench": __version__}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@cache
def _git() -> tuple[str | None, bool | None]:
    """Commit of the checkout whose code this process runs, and whether it has changes; ``None`` outside one."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None, None
    # Without optional locks: one that is killed leaves none behind.
    argv = ("git", "--no-optional-locks", "-C", str(folder), "status", "--porcelain=v2", "--branch")
    done = run_command(argv, _GIT_LIMIT_S)
    if not done.ok:
        return None, None
    lines = done.out.splitlines()
    about = [line for line in lines if line.startswith("# ")]
    commit = next((line.rpartition(" ")[2] for line in about if line.startswith("# branch.oid ")), None)
    return (None if commit == _NO_COMMIT else commit), len(lines) > len(about)


def _field(path: str, name: str) -> str | None:
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="backslashreplace").splitlines()
    except OSError as error:
        if is_machine_fault(error):
            raise  # an unknown processor would be another machine's to a run that goes on here
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Cores' worth of time that the control groups of this process grant (v1 and v2); ``None`` without a quota.

    A container may not see its own path: then the mount's root, where the walk ends, is its group.
    """
    quotas: list[float] = []
    try:
        groups = (root / "proc/self/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in groups:
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        group = mount / path.strip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(mount):
                break
            try:
                quota, period = map(float, " ".join((folder / file).read_text() for file in files).split())
            except (OSError, ValueError):  # "max", or a group without the controller
                continue
            if quota > 0 and period > 0:
                quotas.append(quota / period)
    return min(quotas, default=None)


def _has_os_release() -> bool:
    return any(Path(path).exists() for path in ("/etc/os-release", "/usr/lib/os-release"))


def host_clock() -> tuple[str, int]:
    """Boot id and offset in ns (time_namespaces(7), 0 before 5.6): if equal, times can be joined."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    try:
        offsets = Path("/proc/self/timens_offsets").read_text(encoding="ascii")
    except OSError:
        return boot_id, 0
    return boot_id, monotonic_offset_ns(offsets)


_DEVICES = Path("/sys/class/infiniband")
_BY_LINK_LAYER: dict[str, Network] = {"InfiniBand": "infiniband", "Ethernet": "roce"}


def network(environment: Mapping[str, str], devices: Path = _DEVICES) -> Network:
    """By the active ports of RDMA cards, where NCCL may use them (NCCL_IB_DISABLE, NCCL_NET); else sockets."""
    forbidden = environment.get("NCCL_IB_DISABLE", "0") not in {"", "0"}
    if forbidden or environment.get("NCCL_NET", "").lower() == "socket":
        return "ethernet"
    layers = {_read(port / "link_layer") for port in devices.glob("*/ports/*") if "ACTIVE" in _read(port / "state")}
    return next((kind for layer, kind in _BY_LINK_LAYER.items() if layer in layers), "ethernet")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
