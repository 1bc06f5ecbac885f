"""The engine enroot: image files made from locked digests."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pybench.machine.command import run_command
from pybench.model.container import ContainerSetup, EngineFacts
from pybench.model.errors import UsageError
from pybench.model.machine import DoctorFinding
from pybench.run.engines.enroot.importing import import_image
from pybench.run.engines.enroot.isolation import NAMESPACES, available_namespaces, isolations
from pybench.run.engines.enroot.launcher import EnrootLauncher
from pybench.run.engines.image_file_engine import Files, ImageFileEngine
from pybench.run.engines.image_file_trial import USER_NAMESPACES, tried
from pybench.run.engines.requirements import LaunchRequirements

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
    reason = _defect(version) if result.ok else f"enroot does not work here: {_set_up(result.error_line)}"
    return EngineFacts(name="enroot", version=version, reason=reason, rootless=True)


def isolation_findings() -> Iterator[DoctorFinding]:
    """What a worker sees of the host."""
    absent = [f"--{name}" for name in NAMESPACES if name not in available_namespaces()]
    seen = "own processes, network and /dev, each where this host lets enroot"
    if absent:
        seen = f"this version has no {', '.join(absent)}: workers see the host's processes and network"
    yield DoctorFinding.ok("enroot isolation", f"{seen}; pids are not bounded")


def _launcher(setup: ContainerSetup, files: Files, needs: LaunchRequirements) -> EnrootLauncher:
    """One that starts each image as isolated as this host takes it. Raises ``UsageError`` or ``MachineError``."""
    request, online = needs.request, "network" in needs.request.relax
    tries = isolations(online=online)
    launcher = EnrootLauncher(
        container=setup,
        files=files,
        isolation=tries[0],
        environment_of_suite=request.environment,
        secrets=request.secrets,
    )
    _refuse_quoted(launcher)
    found = tried((replace(launcher, isolation=isolation) for isolation in tries), needs.gpu_uuids, _REMEDIES)
    relaxations = (*found.isolation.relaxations(online=online), *setup.relaxations)
    return replace(found, container=replace(found.container, relaxations=relaxations))


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


def _set_up(words: str) -> str:
    own = "let XDG_RUNTIME_DIR name a folder of yours"
    return f"{words}; {own}" if "ermission denied" in words else words


def _refuse_quoted(launcher: EnrootLauncher) -> None:
    """Enroot takes quotes around a value for its own. Raises ``UsageError``."""
    for name, value in launcher.tuning(os.environ).items():
        if _QUOTED.fullmatch(value):
            raise UsageError(f"enroot takes the quotes off the value of {name}; remove them, or use another --engine")


ENGINE = ImageFileEngine(
    "enroot", "sqsh", examine, import_image, _launcher, honours_entrypoint=True, report=isolation_findings
)
