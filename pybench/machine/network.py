"""What joins this host to others, as the collectives of GPUs take it: InfiniBand, RoCE, or sockets over Ethernet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pybench.model.machine import Network

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
