"""How GPUs get into a container: always by UUID, never by index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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
