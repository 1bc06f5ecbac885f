"""The engine enroot: image files made from locked digests."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pybench.engines.base import ImageStore, Notify
from pybench.engines.enroot.importing import import_image
from pybench.engines.enroot.isolation import NAMESPACES, available_namespaces, isolations
from pybench.engines.enroot.launcher import EnrootLauncher
from pybench.engines.enroot.probe import probed
from pybench.engines.image_file import identity, image_file, registry_reference
from pybench.engines.requirements import EngineOptions, LaunchRequirements
from pybench.images.selection import locked_image
from pybench.machine.command import run_command
from pybench.model.container import ContainerSetup, EngineFacts, Relaxation
from pybench.model.errors import UsageError
from pybench.model.machine import Finding

# The first version that fetches an image by digest.
_OLDEST = (4, 0)
# Programs that enroot looks for only once it needs them.
_PROGRAMS = {"mksquashfs": "squashfs-tools", "unsquashfs": "squashfs-tools", "squashfuse": "squashfuse"}
_KERNEL = Path("/proc/sys")
_SWITCH, _SWITCH_OF_USERS = "user/max_user_namespaces", "kernel/unprivileged_userns_clone"
_QUOTED = re.compile(r"[\"'].*[\"']\s*")


@dataclass(frozen=True)
class EnrootEngine:
    """Starts image files as child processes in user namespaces; it has no daemon and no store of images."""

    name: str = "enroot"

    def find(self) -> EngineFacts:
        """Look whether it is installed and works."""
        if shutil.which(self.name) is None:
            return EngineFacts(name=self.name, version=None, reason=f"{self.name} is not installed")
        result = run_command((self.name, "version"))
        version = result.out.strip() or None
        reason = _defect(version) if result.ok else f"enroot does not work here: {_set_up(result.error_line)}"
        return EngineFacts(name=self.name, version=version, reason=reason, rootless=True)

    def launcher(
        self, facts: EngineFacts, needs: LaunchRequirements, options: EngineOptions, notify: Notify, *, fetch: bool
    ) -> EnrootLauncher:
        """Launcher whose images are there, made if ``fetch``, and start. Raises ``UsageError`` or ``MachineError``."""
        request, lock = needs.request, needs.lock(options)
        if refused := [name for name in request.relax if name != "network"]:
            raise UsageError(f"relax: enroot can't grant {refused[0]}; use docker or podman")
        locked = {
            backend: locked_image(lock, options.image or needs.image_name(backend), backend, needs.device)
            for backend in needs.backends
        }
        files = {
            backend: image_file(self.name, "sqsh", image, import_image, notify, fetch=fetch)
            for backend, image in locked.items()
        }
        setup = ContainerSetup(
            engine=self.name,
            engine_version=facts.version,
            runtime=None,
            rootless=True,
            lock=lock.path,
            images=tuple(
                identity(backend, image, registry_reference(self.name, image), files[backend], image.entrypoint)
                for backend, image in locked.items()
            ),
            mounts=request.mounts,
            relaxations=(),
        )
        online = "network" in request.relax
        tries = isolations(online=online)
        launcher = EnrootLauncher(
            container=setup,
            files=files,
            isolation=tries[0],
            environment_of_suite=request.environment,
            secrets=request.secrets,
        )
        _refuse_quoted(launcher)
        found = probed(launcher, tries, needs.gpu_uuids)
        requested = tuple(Relaxation(name=name, reason="the suite requests it") for name in request.relax)
        relaxations = (*found.isolation.relaxations(online=online), *requested)
        return replace(found, container=replace(found.container, relaxations=relaxations))

    def findings(self, facts: EngineFacts) -> Iterator[Finding]:
        """What a worker sees of the host."""
        del facts
        absent = [f"--{name}" for name in NAMESPACES if name not in available_namespaces()]
        seen = "own processes, network and /dev, each where this host lets enroot"
        if absent:
            seen = f"this version has no {', '.join(absent)}: workers see the host's processes and network"
        yield Finding.ok("enroot isolation", f"{seen}; pids are not bounded")

    def store(self, facts: EngineFacts) -> ImageStore | None:
        """None: image files are made by digest when a run needs them."""
        del facts
        return None


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


ENGINE = EnrootEngine()
