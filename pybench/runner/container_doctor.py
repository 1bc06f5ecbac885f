"""What this machine has and lacks for containers."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
from pathlib import Path

from pybench.machine.engines import find_engines, has_cdi, this_platform, toolkit_version
from pybench.model.container import EngineFacts
from pybench.model.errors import FileError, MachineError
from pybench.model.image import ImageLock, LockedImage
from pybench.model.machine import Finding, Machine
from pybench.runner.locked_images import present
from pybench.store.image_lock import default_lock, read_lock

# CVE-2025-23266: an image could run code as root on the host through the toolkit's hook.
_SAFE_TOOLKIT = (1, 17, 8)
# The largest locked images unpack to some 30 GB.
_MIN_FREE_BYTES = 60 * 2**30


def examine_containers(machine: Machine) -> tuple[Finding, ...]:
    """Engines, GPU integration, locked images. Nothing here is ``missing``: workers run without containers, too."""
    engines = find_engines()
    usable = [facts for facts in engines if facts.reason is None]
    try:
        lock = read_lock(default_lock())
    except FileError as error:
        return (*map(_engine, engines), _warn("image lock", str(error), "mend it, or install pybench anew"))
    return (
        *map(_engine, engines),
        *(_space(facts) for facts in usable if facts.data_root),
        *((_toolkit(), _cdi()) if machine.gpus and usable else ()),
        *(_drivers(lock, machine) if machine.gpus else ()),
        *([_images(lock, usable)] if usable else []),
    )


def _warn(name: str, found: str, remedy: str) -> Finding:
    return Finding(name=name, state="warning", found=found, remedy=remedy)


def _ok(name: str, found: str) -> Finding:
    return Finding(name=name, state="ok", found=found)


def _engine(facts: EngineFacts) -> Finding:
    name = f"engine {facts.name}"
    if facts.version is None and shutil.which(facts.name) is None:
        return _ok(name, "not installed")
    if facts.reason:
        return _warn(name, facts.reason, "start or mend it; without an engine workers run in this machine's Python")
    about = [facts.version or "unknown version", *([facts.runtime] if facts.runtime else [])]
    if not facts.rootless or facts.name == "apptainer":
        return _ok(name, ", ".join(about))
    lacks = _rootless_lacks()
    found = ", ".join((*about, "rootless", *lacks))
    return _warn(name, found, "; ".join(lacks.values())) if lacks else _ok(name, found)


def _rootless_lacks() -> dict[str, str]:
    """What an engine of an ordinary user can't do here, each with its remedy."""
    lacks = {}
    if "pids" not in _delegated_controllers():
        lacks["without the pids controller"] = "delegate cgroup controllers to users (systemd: Delegate=yes)"
    if _memlock_bytes() != resource.RLIM_INFINITY:
        lacks[f"memlock {_memlock_bytes():,} bytes at most"] = "raise memlock in /etc/security/limits.conf"
    if not _has_subordinate_ids():
        lacks["without subordinate ids"] = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER"
    return lacks


def _memlock_bytes() -> int:
    """Memory that this user's processes may pin at most; RDMA and NCCL pin their buffers."""
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]


def _has_subordinate_ids() -> bool:
    """Whether this user has ids for the users inside: subuid(5)."""
    user = pwd.getpwuid(os.getuid())
    try:
        lines = Path("/etc/subuid").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.partition(":")[0] in {user.pw_name, str(user.pw_uid)} for line in lines)


def _delegated_controllers() -> list[str]:
    """Controllers of cgroup v2 that this user's processes may use; none on cgroup v1."""
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition("::")[2].strip()
        return Path(f"/sys/fs/cgroup{own}/cgroup.controllers").read_text(encoding="utf-8").split()
    except OSError:
        return []


def _space(facts: EngineFacts) -> Finding:
    folder = Path(facts.data_root or "/")
    name = f"{facts.name} storage"
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return _warn(name, f"{folder} can't be looked at: {error.strerror}", "ask its owner how much is free")
    found = f"{free / 2**30:.0f} GiB free in {folder}"
    return _ok(name, found) if free >= _MIN_FREE_BYTES else _warn(name, found, "free space: images take 30 GB each")


def _toolkit() -> Finding:
    version = toolkit_version()
    name, safe = "NVIDIA toolkit", ".".join(map(str, _SAFE_TOOLKIT))
    if version is None:
        return _warn(name, "not installed", f"install the NVIDIA Container Toolkit, {safe} or newer")
    found = ".".join(map(str, version))
    remedy = f"update to {safe} or newer: older ones let an image run code as root here (CVE-2025-23266)"
    return _ok(name, found) if version >= _SAFE_TOOLKIT else _warn(name, found, remedy)


def _cdi() -> Finding:
    if has_cdi():
        return _ok("CDI", "names the GPUs by UUID")
    remedy = "nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
    return _warn("CDI", "no specification names the GPUs by UUID", remedy)


def _drivers(lock: ImageLock, machine: Machine) -> list[Finding]:
    """Images whose stated minimum this driver doesn't reach."""
    return [
        _warn(
            f"image {image.name}",
            f"asks for driver {image.minimum_driver}, this machine has {machine.driver}",
            "update the driver, or use an older image; data-centre GPUs may get by on forward compatibility",
        )
        for image in lock.images
        if _too_old(image, machine.driver)
    ]


def _too_old(image: LockedImage, driver: str | None) -> bool:
    if image.minimum_driver is None or driver is None:
        return False
    return _numbers(driver) < _numbers(image.minimum_driver)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _images(lock: ImageLock, usable: list[EngineFacts]) -> Finding:
    try:
        here = [image.name for image in lock.images if present(image, usable)]
    except MachineError as error:
        return _warn("images", str(error), "mend the engine")
    if here:
        return _ok("images", f"{', '.join(here)} of {len(lock.images)} locked")
    remedy = "pybench images pull NAME; until then workers run in this machine's Python"
    return _warn("images", f"none of the {len(lock.images)} locked for {this_platform()} is here", remedy)
