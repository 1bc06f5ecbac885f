"""What joins the GPUs of a host, by how each pair is joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Fabric = Literal["nvlink", "pcie", "none"]


def fabric_of(topology: Sequence[Sequence[str]]) -> Fabric:
    """``nvlink`` only when every pair is joined by it: the slowest pair sets the pace. Without a pair ``none``."""
    ways = {way for i, row in enumerate(topology) for j, way in enumerate(row) if i != j}
    if not ways:
        return "none"
    return "nvlink" if all(way.startswith("NV") for way in ways) else "pcie"
