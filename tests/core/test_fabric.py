"""What joins GPUs."""

from __future__ import annotations

import pytest

from pybench.machine.environment import fabric_of


@pytest.mark.parametrize(
    ("ways", "fabric"),
    [((), "none"), (("NV18", "NV18", "NV18"), "nvlink"), (("NV18", "PHB", "NV18"), "pcie"), (("SYS",) * 3, "pcie")],
)
def test_the_slowest_pair_names_the_fabric(ways: tuple[str, ...], fabric: str) -> None:
    """Three GPUs, given by the pairs 0-1, 0-2 and 1-2; no pair, no fabric."""
    rows: tuple[tuple[str, ...], ...] = (("X",),)
    if ways:
        one, two, three = ways
        rows = (("X", one, two), (one, "X", three), (two, three, "X"))
    assert fabric_of(rows) == fabric
