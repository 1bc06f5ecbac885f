"""What joins hosts, read from the kernel's view of RDMA cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.machine.environment import network

IB, ROCE = ("4: ACTIVE", "InfiniBand"), ("4: ACTIVE", "Ethernet")
DOWN = ("1: DOWN", "InfiniBand")


@pytest.mark.parametrize(
    ("cards", "environment", "found"),
    [
        ((), {}, "ethernet"),
        ((IB,), {}, "infiniband"),
        ((ROCE,), {}, "roce"),
        ((DOWN, ROCE), {}, "roce"),
        ((ROCE, IB), {}, "infiniband"),
        ((DOWN,), {}, "ethernet"),
        ((IB,), {"NCCL_IB_DISABLE": "1"}, "ethernet"),
        ((IB,), {"NCCL_IB_DISABLE": "0"}, "infiniband"),
        ((IB,), {"NCCL_NET": "Socket"}, "ethernet"),
    ],
)
def test_by_active_ports(
    tmp_path: Path, cards: tuple[tuple[str, str], ...], environment: dict[str, str], found: str
) -> None:
    """Of cards that NCCL may use; sockets are left."""
    for number, (state, layer) in enumerate(cards):
        port = tmp_path / f"mlx5_{number}/ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "link_layer").write_text(f"{layer}\n")
    (tmp_path / "broken/ports/1").mkdir(parents=True)
    assert network(environment, tmp_path) == found
