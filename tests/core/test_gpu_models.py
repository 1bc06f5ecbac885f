"""GPUs by the name that a driver gives."""

from __future__ import annotations

import pytest

from pybench.core.gpu_models import gpu_peak, machine_kind


@pytest.mark.parametrize(
    ("name", "tflops", "tb_per_s"),
    [
        ("NVIDIA H200", 989.5, 4.8),
        ("NVIDIA H200 NVL", 835.5, 4.8),
        ("NVIDIA H100 80GB HBM3", 989.5, 3.35),
        ("NVIDIA H100 PCIe", 756.5, 2.0),
        ("NVIDIA A100-SXM4-80GB", 312, 2.039),
        ("NVIDIA A100-PCIE-40GB", 312, 1.555),
        ("NVIDIA A100 80GB PCIe", 312, 1.935),
        ("NVIDIA B200", 2250, 8.0),
        ("NVIDIA GeForce RTX 4090", 165.2, 1.008),
    ],
)
def test_known_boards(name: str, tflops: float, tb_per_s: float) -> None:
    """A part's PCIe and NVL forms are others."""
    peak = gpu_peak(name)
    assert peak is not None
    assert peak.flops_per_s("bfloat16") == tflops * 1e12
    assert peak.memory_bytes_per_s == tb_per_s * 1e12
    assert peak.flops_per_s("float32") is None


LESSER = (
    *("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 5090 Laptop GPU"),
    *("GRID A100-3-20CME", "GRID A100D-1-10CME", "GRID A100-40C", "NVIDIA A100X", "NVIDIA A100-SXM-64GB"),
)


@pytest.mark.parametrize(
    "name", ["", "NVIDIA GH200 480GB", "NVIDIA GB200", "Tesla V100-SXM2-16GB", "AVX2", "NVIDIA L40S-24Q", *LESSER]
)
def test_unknown_boards(name: str) -> None:
    """No peak is better than a wrong one: a virtual GPU is a part of a board."""
    assert gpu_peak(name) is None


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
        (["NVIDIA A100 80GB PCIe"], "a100-pcie"),
        (["NVIDIA B200"], "b200"),
        (["NVIDIA GB200"], "gb200"),
        (["NVIDIA GH200 480GB"], "gh200"),
        (["nvidia l40s"], "l40s"),
        (["NVIDIA GeForce RTX 4090"], "rtx4090"),
        (["Tesla V100-SXM2-16GB"], "v100"),
        (["NVIDIA H200", "NVIDIA H100 80GB HBM3"], "mixed"),
        (["NVIDIA T4 (rev. 2)"], "unknown-nvidia-t4-rev-2"),
        (["GRID A100-20C"], "unknown-grid-a100-20c"),
        (["NVIDIA A100-4-20C"], "unknown-nvidia-a100-4-20c"),
        (["GRID V100D-8Q"], "unknown-grid-v100d-8q"),
    ],
)
def test_machine_kind(names: list[str], expected: str) -> None:
    """The part, its form where that matters, or its own name."""
    assert machine_kind(names) == expected


@pytest.mark.parametrize("name", LESSER)
def test_lesser_boards_are_kinds_of_their_own(name: str) -> None:
    """A laptop's, China's or virtual board that is named after a larger one is compared with its own kind alone."""
    assert machine_kind([name]).startswith("unknown-")
