"""How GPUs get into a container: always by UUID, never by index."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pybench.machine.command import run_command

# Control nodes that CUDA needs beside each GPU's own; nvidia-uvm-tools is for profilers only.
_CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


@dataclass(frozen=True, kw_only=True)
class GpuAccess:
    """One of three ways.

    ``cdi`` names GPUs through the container device interface, ``toolkit`` through docker's ``--gpus``; ``nodes`` hands
    over device files on a machine that has neither (its driver libraries must be in the image or mounted).
    ``device_nodes`` maps UUIDs to device files; only ``nodes`` needs it.
    """

    way: Literal["cdi", "toolkit", "nodes"]
    device_nodes: Mapping[str, str] = field(default_factory=dict)

    def options(self, uuids: tuple[str, ...]) -> tuple[str, ...]:
        """Options of docker's and podman's ``run``. Raises ``KeyError`` for a GPU that has no device node."""
        if not uuids:
            return ()
        match self.way:
            case "cdi":
                return tuple(part for uuid in uuids for part in ("--device", f"nvidia.com/gpu={uuid}"))
            case "toolkit":
                # The quotes are docker's: the option is itself a line of comma-separated values.
                return ("--gpus", f'"device={",".join(uuids)}"')
            case "nodes":
                nodes = (*(self.device_nodes[uuid] for uuid in uuids), *_CONTROL_NODES)
                return tuple(part for node in nodes for part in ("--device", node))


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
