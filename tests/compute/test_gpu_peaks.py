"""Peaks by the name that a driver gives."""

from __future__ import annotations

import pytest

from pybench.compute.gpu_peaks import gpu_peak


@pytest.mark.parametrize(
    ("name", "tflops", "tb_per_s"),
    [
        ("NVIDIA H200", 989.5, 4.8),
        ("NVIDIA H200 NVL", 835.5, 4.8),
        ("NVIDIA H100 80GB HBM3", 989.5, 3.35),
        ("NVIDIA H100 PCIe", 756.5, 2.0),
        ("NVIDIA A100-SXM4-80GB", 312, 2.039),
        ("NVIDIA A100-PCIE-40GB", 312, 1.555),
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


@pytest.mark.parametrize("name", ["", "NVIDIA GH200 480GB", "NVIDIA GB200", "Tesla V100-SXM2-16GB", "AVX2"])
def test_unknown_boards(name: str) -> None:
    """No peak is better than a wrong one."""
    assert gpu_peak(name) is None
