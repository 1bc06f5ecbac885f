"""Short names of machines."""

from __future__ import annotations

import pytest

from pybench.compute.machine_kind import machine_kind


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], "cpu"),
        (["NVIDIA H200"], "h200"),
        (["NVIDIA H200"] * 8, "h200"),
        (["NVIDIA H200 NVL"], "h200-nvl"),
        (["NVIDIA H100 80GB HBM3"], "h100"),
        (["NVIDIA H100 PCIe"], "h100-pcie"),
        (["NVIDIA H100 NVL"], "h100-nvl"),
        (["NVIDIA A100-SXM4-80GB"], "a100"),
        (["NVIDIA A100-PCIE-40GB"], "a100-pcie"),
        (["NVIDIA B200"], "b200"),
        (["NVIDIA GB200"], "gb200"),
        (["NVIDIA GH200 480GB"], "gh200"),
        (["nvidia l40s"], "l40s"),
        (["NVIDIA GeForce RTX 4090"], "rtx4090"),
        (["Tesla V100-SXM2-16GB"], "v100"),
        (["NVIDIA H200", "NVIDIA H100 80GB HBM3"], "mixed"),
        (["NVIDIA T4 (rev. 2)"], "unknown-nvidia-t4-rev-2"),
    ],
)
def test_machine_kind(names: list[str], expected: str) -> None:
    assert machine_kind(names) == expected
