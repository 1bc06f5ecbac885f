"""Which container engines this machine has, and whether they answer."""

from __future__ import annotations

import json
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pybench.machine.command import ask
from pybench.model.container import EngineFacts, EngineName

# Where the container device interface keeps its specifications (CDI specification, section "Location").
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
# Older toolkits name devices by their index alone unless told otherwise, and an index is no name for a GPU.
_CDI_UUID = re.compile(r'"?name"?:\s*"?GPU-')
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def this_platform() -> str:
    """This machine in an image's words, such as ``linux/amd64``."""
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def find_engine(name: EngineName) -> EngineFacts:
    """Look at one engine. An engine that can't be used has a ``reason``."""
    if name == "none":
        return EngineFacts(name="none", version=None)
    if shutil.which(name) is None:
        return EngineFacts(name=name, version=None, reason=f"{name} is not installed")
    return _FINDERS[name]()


def find_engines() -> tuple[EngineFacts, ...]:
    """All engines that pybench can drive, the preferred one first."""
    return tuple(find_engine(name) for name in _FINDERS)


def has_cdi(folders: tuple[str, ...] = _CDI_FOLDERS) -> bool:
    """Whether a CDI specification names NVIDIA GPUs by UUID."""
    files = [path for folder in folders for path in Path(folder).glob("*") if path.suffix in {".json", ".yaml", ".yml"}]
    return any("nvidia.com/gpu" in text and _CDI_UUID.search(text) for text in map(_text, files))


def toolkit_version() -> tuple[int, ...] | None:
    """Version of the NVIDIA Container Toolkit, ``None`` without one."""
    answer = ask(("nvidia-ctk", "--version"))
    found = re.search(r"version (\d+(?:\.\d+)+)", answer.out)
    return tuple(map(int, found[1].split("."))) if answer.ok and found else None


def device_nodes(proc: Path = Path("/proc/driver/nvidia/gpus")) -> dict[str, str]:
    """Device node of each GPU by UUID, for engines that have no NVIDIA integration."""
    texts = [_text(path) for path in sorted(proc.glob("*/information"))]
    pairs = [(re.search(r"GPU UUID:\s*(\S+)", t), re.search(r"Device Minor:\s*(\d+)", t)) for t in texts]
    return {uuid[1]: f"/dev/nvidia{minor[1]}" for uuid, minor in pairs if uuid and minor}


def _docker() -> EngineFacts:
    answer = ask(("docker", "info", "--format", "{{json .}}"))
    info = _object(answer.out)
    if not info.get("ServerVersion"):
        complaint = "; ".join(info.get("ServerErrors") or ()) or answer.complaint
        return EngineFacts(name="docker", version=None, reason=f"the docker daemon doesn't answer: {complaint}")
    status = [value for pair in info.get("DriverStatus") or () for value in pair]
    return EngineFacts(
        name="docker",
        version=info["ServerVersion"],
        rootless=any("name=rootless" in option for option in info.get("SecurityOptions") or ()),
        runtime=info.get("DefaultRuntime"),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        store="containerd" if any("containerd" in value for value in status) else "classic",
        cdi=bool(info.get("CDISpecDirs")) and has_cdi(tuple(info["CDISpecDirs"])),
        data_root=info.get("DockerRootDir"),
    )


def _podman() -> EngineFacts:
    answer = ask(("podman", "info", "--format", "json"))
    info = _object(answer.out)
    if not answer.ok or "host" not in info:
        return EngineFacts(name="podman", version=None, reason=f"podman refuses to work: {answer.complaint}")
    host = info["host"]
    return EngineFacts(
        name="podman",
        version=info.get("version", {}).get("Version"),
        rootless=bool(host.get("security", {}).get("rootless")),
        runtime=host.get("ociRuntime", {}).get("name"),
        runtimes=tuple(name for name in ("crun", "runc") if shutil.which(name)),
        cdi=has_cdi(),
        data_root=info.get("store", {}).get("graphRoot"),
    )


def _apptainer() -> EngineFacts:
    answer = ask(("apptainer", "--version"))
    if not answer.ok:
        return EngineFacts(name="apptainer", version=None, reason=f"apptainer refuses to work: {answer.complaint}")
    return EngineFacts(name="apptainer", version=answer.out.split()[-1] if answer.out.split() else None, rootless=True)


_FINDERS: dict[EngineName, Callable[[], EngineFacts]] = {
    "docker": _docker,
    "podman": _podman,
    "apptainer": _apptainer,
}


def _object(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
