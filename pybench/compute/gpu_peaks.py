"""What a GPU can do at most, as its maker states it: dense tensor-core FLOP/s and memory bandwidth.

Sources: NVIDIA's data sheets of A100, H100, H200, L40S and DGX B200 (figures "with sparsity" halved; DGX B200's over
its eight GPUs), and the Ada GPU architecture whitepaper, appendix A, for the RTX 4090 (with FP32 accumulation).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TERA = 1e12


@dataclass(frozen=True)
class GpuPeak:
    """Peaks of one GPU. ``half_tflops`` is for bfloat16 and float16; ``None`` where tensor cores lack the type."""

    half_tflops: float
    fp8_tflops: float | None
    memory_tb_per_s: float

    def flops_per_s(self, kind: str) -> float | None:
        """Peak for ``bfloat16``, ``float16`` or ``fp8``; ``None`` for other types."""
        known = {"bfloat16": self.half_tflops, "float16": self.half_tflops, "fp8": self.fp8_tflops}
        tflops = known.get(kind)
        return None if tflops is None else tflops * _TERA

    @property
    def memory_bytes_per_s(self) -> float:
        """Peak memory bandwidth."""
        return self.memory_tb_per_s * _TERA


# First match of the name that the driver gives wins.
_PEAKS: tuple[tuple[str, GpuPeak], ...] = (
    (r"B200", GpuPeak(2250, 4500, 8.0)),
    (r"H200 NVL", GpuPeak(835.5, 1670.5, 4.8)),
    (r"H200", GpuPeak(989.5, 1979, 4.8)),
    (r"H100 NVL", GpuPeak(835.5, 1670.5, 3.9)),
    (r"H100 PCIe", GpuPeak(756.5, 1513, 2.0)),
    (r"H100", GpuPeak(989.5, 1979, 3.35)),
    (r"A100.*SXM.*80GB", GpuPeak(312, None, 2.039)),
    (r"A100.*PCIE?.*80GB", GpuPeak(312, None, 1.935)),
    (r"A100.*40GB", GpuPeak(312, None, 1.555)),
    (r"L40S", GpuPeak(362.05, 733, 0.864)),
    (r"RTX 4090", GpuPeak(165.2, 330.3, 1.008)),
)
_OTHER_PARTS = r"G[BH]\d00"


def gpu_peak(name: str) -> GpuPeak | None:
    """Peaks by the name that the driver gives, ``None`` for GPUs that the table lacks."""
    if re.search(_OTHER_PARTS, name):
        return None
    return next((peak for pattern, peak in _PEAKS if re.search(pattern, name, re.IGNORECASE)), None)
