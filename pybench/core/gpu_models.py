"""GPUs by the name that the driver gives: the short name that profiles and tables are keyed by, and the maker's peaks.

Peaks are dense tensor-core FLOP/s and memory bandwidth. Sources: NVIDIA's data sheets of A100, H100, H200, L40S and DGX
B200 (figures "with sparsity" halved; DGX B200's over its eight GPUs), and the Ada GPU architecture whitepaper, appendix
A, for the RTX 4090 (with FP32 accumulation). Compute capabilities: NVIDIA's list "CUDA GPU Compute Capability".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

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


@dataclass(frozen=True)
class GpuModel:
    """GPUs whose name matches ``pattern``, in any letter case; ``peak`` is ``None`` where it is not known."""

    pattern: str
    kind: str
    compute_capability: str
    peak: GpuPeak | None = None


# First match wins: a part's PCIe or NVL form, with its lower power and other links, stands before the SXM part, and a
# superchip's name before that of the GPU in it.
_MODELS: tuple[GpuModel, ...] = (
    GpuModel(r"GB300", "gb300", "10.3"),
    GpuModel(r"GB200", "gb200", "10.0"),
    GpuModel(r"GH200", "gh200", "9.0"),
    GpuModel(r"B300", "b300", "10.3"),
    GpuModel(r"B200", "b200", "10.0", GpuPeak(2250, 4500, 8.0)),
    GpuModel(r"H200 NVL", "h200-nvl", "9.0", GpuPeak(835.5, 1670.5, 4.8)),
    GpuModel(r"H200", "h200", "9.0", GpuPeak(989.5, 1979, 4.8)),
    GpuModel(r"H100 NVL", "h100-nvl", "9.0", GpuPeak(835.5, 1670.5, 3.9)),
    GpuModel(r"H100 PCIe", "h100-pcie", "9.0", GpuPeak(756.5, 1513, 2.0)),
    GpuModel(r"H100", "h100", "9.0", GpuPeak(989.5, 1979, 3.35)),
    GpuModel(r"A100.*PCIE.*40GB", "a100-pcie", "8.0", GpuPeak(312, None, 1.555)),
    GpuModel(r"A100.*(80GB.*PCIE|PCIE.*80GB)", "a100-pcie", "8.0", GpuPeak(312, None, 1.935)),
    GpuModel(r"A100.*PCIE", "a100-pcie", "8.0"),
    GpuModel(r"A100.*40GB", "a100", "8.0", GpuPeak(312, None, 1.555)),
    GpuModel(r"A100.*80GB", "a100", "8.0", GpuPeak(312, None, 2.039)),
    GpuModel(r"A100", "a100", "8.0"),
    GpuModel(r"L40S", "l40s", "8.9", GpuPeak(362.05, 733, 0.864)),
    GpuModel(r"RTX 4090", "rtx4090", "8.9", GpuPeak(165.2, 330.3, 1.008)),
    GpuModel(r"RTX 5090", "rtx5090", "12.0"),
    GpuModel(r"V100", "v100", "7.0"),
)

# A virtual GPU is named by the board and its own profile: GB of memory, and A, B, C (also CME) or Q for its licence.
# Laptop, Max-Q and D boards have fewer cores or less power, an A100X and a 64 GB A100 other clocks or memory.
_LESSER = re.compile(
    r"-[0-9]+(-[0-9]+)?([ABQ]|C(ME)?)$|\bLaptop\b|\bMax-Q\b|\b[0-9]{4} ?D\b|\bA100X\b|-64GB\b", re.IGNORECASE
)


@cache
def gpu_model(name: str) -> GpuModel | None:
    """The GPU of this name, ``None`` for those that the table lacks, and for lesser and virtual boards."""
    if _LESSER.search(name):
        return None
    return next((model for model in _MODELS if re.search(model.pattern, name, re.IGNORECASE)), None)


def known_kinds() -> frozenset[str]:
    """Every short name that the table has."""
    return frozenset(model.kind for model in _MODELS)


def compute_capability(kind: str) -> str | None:
    """Of GPUs of a short name, such as ``9.0``; ``None`` for those that the table lacks."""
    return next((model.compute_capability for model in _MODELS if model.kind == kind), None)


def gpu_peak(name: str) -> GpuPeak | None:
    """Peaks by the name that the driver gives, ``None`` where they are not known."""
    model = gpu_model(name)
    return None if model is None else model.peak


def machine_kind(gpu_names: Sequence[str]) -> str:
    """``cpu`` without GPUs, ``mixed`` with different ones, else a known kind or ``unknown-<name>``."""
    names = set(gpu_names)
    if not names:
        return "cpu"
    if len(names) > 1:
        return "mixed"
    name = names.pop()
    model = gpu_model(name)
    return model.kind if model else "unknown-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
