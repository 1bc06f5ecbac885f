"""Checks of this machine: parts that pybench needs, and settings that change its figures."""

from __future__ import annotations

import os
import resource
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata
from itertools import combinations
from pathlib import Path
from typing import Literal

from pybench.machine.environment import snapshot
from pybench.machine.extension import REMEDY, extension_fault
from pybench.machine.gpus import hides_all
from pybench.machine.health_watch import read_xids
from pybench.model.backend import BACKENDS
from pybench.model.machine import DoctorFinding, GpuInfo, Machine
from pybench.model.text import amount_text, counted, plural

_GIB = 2**30
# NCCL's shared-memory transport takes tens of MiB a rank pair; a gibibyte serves eight GPUs with room.
_MIN_SHM_BYTES = _GIB
_SHM = "/dev/shm"  # noqa: S108 - only its size is read
# A run keeps traces and logs of some MiB an attempt; less than this and something else is filling the disk.
_MIN_DISK_BYTES = 10 * _GIB
# Another process on half of a core already shows in a CPU point.
_BUSY_FRACTION = 0.25
_LOST_REMEDY = "look into the kernel's log for its Xid, and restart the machine; the other GPUs are used until then"

_FABRIC_REMEDY = (
    "give the fabric manager the driver's version and start it: systemctl restart nvidia-fabricmanager; until then "
    "CUDA programs end with error 802"
)
_GRAVE_XIDS = frozenset({48, 64, 74, 79, 95, 119, 120, 140})
"""Errors of hardware, not of programs (docs.nvidia.com, XID errors): memory, NVLink, lost GPU, GSP."""


def examine(notify: Callable[[str], None] | None = None) -> tuple[DoctorFinding, ...]:
    """Look at everything once. ``missing`` is what stops pybench, ``warning`` what bends its figures."""
    machine = snapshot(notify)
    faults = (("power sampler", extension_fault("_nvml")), ("energy estimate", extension_fault("_energy")))
    return (
        *(
            _finding(name, well=not fault, found=fault or "extension built", remedy=REMEDY, otherwise="missing")
            for name, fault in faults
        ),
        *_backends(machine),
        _gpus(machine),
        *_links(machine),
        *(
            DoctorFinding.warning("GPU left out", fault.partition("; ")[0], fault.partition("; ")[2] or _LOST_REMEDY)
            for fault in (machine.gpu_faults if machine.gpus else ())
        ),
        *(finding for gpu in machine.gpus for finding in _gpu(gpu, machine)),
        _space(_SHM, "shared memory", _MIN_SHM_BYTES, "mount it larger: mount -o remount,size=8G /dev/shm"),
        _space(".", "disk", _MIN_DISK_BYTES, "free space, or keep runs elsewhere with --runs"),
        *_limits(machine),
        *_kernel_log(),
    )


def _finding(
    name: str, *, well: bool, found: str, remedy: str, otherwise: Literal["warning", "missing"] = "warning"
) -> DoctorFinding:
    return DoctorFinding(name=name, state="ok" if well else otherwise, found=found, remedy="" if well else remedy)


def _backends(machine: Machine) -> Iterator[DoctorFinding]:
    """Each backend. One suffices: the others' absence is a warning then."""
    of_all = {name: {p: _version(p) for p in traits.packages} for name, traits in BACKENDS.items()}
    any_whole = any(None not in versions.values() for versions in of_all.values())
    for name, versions in of_all.items():
        whole, remedy = None not in versions.values(), BACKENDS[name].remedy
        packages = ", ".join(f"{package} {version or 'not installed'}" for package, version in versions.items())
        if whole and machine.gpus and (versions.get("torch") or "").endswith("+cpu"):
            whole, remedy = False, "this torch can't use the GPUs: install a CUDA build of the same version"
        otherwise: Literal["warning", "missing"] = "warning" if any_whole else "missing"
        yield _finding(f"backend {name}", well=whole, found=packages, remedy=remedy, otherwise=otherwise)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpus(machine: Machine) -> DoctorFinding:
    kinds = (
        gpu.name if gpu.vram_gib is None else f"{gpu.name} of {amount_text(gpu.vram_gib * _GIB)}"
        for gpu in machine.gpus
    )
    if machine.gpus:
        return DoctorFinding.ok("GPUs", f"{counted(kinds)}, driver {machine.driver or 'unknown'}")
    if machine.gpu_remedy:
        until = "until then a run ends with exit code 3, or measures CPU cores with --profile cpu"
        remedy = f"{machine.gpu_remedy}; {until}"
        return DoctorFinding(name="GPUs", state="missing", found=str(machine.gpu_reason), remedy=remedy)
    first = "unset CUDA_VISIBLE_DEVICES for GPUs" if hides_all() else "install the NVIDIA driver for GPUs"
    until = "until then suites use their cpu profile and power is unknown"
    return DoctorFinding.warning("GPUs", str(machine.gpu_reason), f"{first}; {until}")


def _links(machine: Machine) -> Iterator[DoctorFinding]:
    """Number of pairs of GPUs by kind of link, as ``nvidia-smi topo -m`` names it."""
    pairs = Counter(machine.topology[a][b] for a, b in combinations(range(len(machine.topology)), 2))
    if links := ", ".join(f"{way}: {plural(count, 'pair')}" for way, count in pairs.most_common()):
        yield DoctorFinding.ok("GPU links", links)


def _gpu(gpu: GpuInfo, machine: Machine) -> list[DoctorFinding]:
    """Findings that change this GPU's figures; a healthy GPU has none."""
    ecc, persistent = gpu.ecc_enabled, gpu.persistence_enabled
    limit, default = gpu.power_limit_w or 0.0, gpu.power_limit_default_w or 0.0
    most = max((other.num_nvlinks or 0 for other in machine.gpus if other.name == gpu.name), default=0)
    inactive = "look for the inactive ones: nvidia-smi nvlink --status; every collective waits for this GPU"
    states = (
        (gpu.mig_enabled, "MIG is on", "turn it off: power of instances can't be measured separately"),
        (ecc is False, "ECC is off", "turn it on: expected tables were measured with it"),
        (persistent is False, "persistence mode is off", "turn it on: the driver unloads between attempts"),
        (0 < limit < default, f"power limit {limit:g} W of {default:g} W", "restore the default power limit"),
        (gpu.fabric not in {None, "completed"}, f"its NVSwitch fabric is {gpu.fabric}", _FABRIC_REMEDY),
        (gpu.num_nvlinks is not None and gpu.num_nvlinks < most, f"{gpu.num_nvlinks} NVLinks of {most}", inactive),
    )
    return [DoctorFinding.warning(f"GPU {gpu.index}", fault, remedy) for is_so, fault, remedy in states if is_so]


def _space(path: str, name: str, needed_bytes: int, remedy: str) -> DoctorFinding:
    if not Path(path).exists():
        return DoctorFinding.warning(name, f"{path} does not exist", remedy)
    free = shutil.disk_usage(path).free
    return _finding(
        name, well=free >= needed_bytes, found=f"{amount_text(free)} free in {Path(path).absolute()}", remedy=remedy
    )


def _limits(machine: Machine) -> Iterator[DoctorFinding]:
    """Locked memory, load and quota of the CPU."""
    memory_bytes, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = memory_bytes in {resource.RLIM_INFINITY, -1}
    yield _finding(
        "locked memory",
        well=not machine.gpus or unlimited or memory_bytes >= _GIB,
        found="unlimited" if unlimited else amount_text(memory_bytes),
        remedy="raise it before the run: ulimit -l unlimited",
    )
    load = os.getloadavg()[0]
    yield _finding(
        "load",
        well=load <= machine.cpu_cores * _BUSY_FRACTION,
        found=f"{load:.2f} over the last minute on {plural(machine.cpu_cores, 'core')}",
        remedy="end what else is running: it widens every interval",
    )
    if machine.cpu_quota is not None and machine.cpu_quota < len(machine.cpus):
        quota = f"{machine.cpu_quota:g} of {plural(len(machine.cpus), 'core')}, by the control group"
        yield DoctorFinding.warning("CPU quota", quota, "raise it: cpu.max, or limits.cpu of the pod")


def _kernel_log() -> Iterator[DoctorFinding]:
    """Errors of hardware since the log began, once each."""
    grave = [xid for xid in read_xids() or () if xid.of_switch or xid.number in _GRAVE_XIDS]
    for text in dict.fromkeys(f"{xid}, PCI {xid.pci_bus_id}" for xid in grave):
        remedy = "look the number up in NVIDIA's table; unless it was done since, reset the GPU or restart the machine"
        yield DoctorFinding.warning("kernel log", text, remedy)
