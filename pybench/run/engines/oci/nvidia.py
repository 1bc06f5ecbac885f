"""How this machine hands NVIDIA GPUs to containers: CDI, the container toolkit, device files."""

from __future__ import annotations

import re
from pathlib import Path

from pybench.machine.command import run_command

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
    found = re.search(r"version (\d+(?:\.\d+)+)", result.out)
    return tuple(map(int, found[1].split("."))) if result.ok and found else None


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
