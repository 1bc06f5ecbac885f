"""What a GPU's tensor cores can do at most, as its maker says: the denominator of MFU."""

from __future__ import annotations

from dataclasses import dataclass

_HALF = ("bfloat16", "float16")


@dataclass(frozen=True)
class PeakRow:
    """One GPU: words of its name, dense bf16 FLOP/s with fp32 accumulation, and where that figure stands."""

    words: tuple[str, ...]
    flops_per_s: float
    source: str


# The first row whose words are all in the name applies: a variant stands before the name it contains. Vendors like to
# print figures with sparsity; these are dense.
PEAKS: tuple[PeakRow, ...] = (
    PeakRow(("H200", "NVL"), 835.5e12, "NVIDIA H200 datasheet: 1,671 TFLOPS with sparsity, half of it dense"),
    PeakRow(("H200",), 989.5e12, "NVIDIA H200 datasheet: 1,979 TFLOPS with sparsity, half of it dense"),
    PeakRow(("H100", "NVL"), 835.5e12, "NVIDIA H100 datasheet: 1,671 TFLOPS with sparsity, half of it dense"),
    PeakRow(("H100", "PCIe"), 756.5e12, "NVIDIA H100 PCIe datasheet: 1,513 TFLOPS with sparsity, half of it dense"),
    PeakRow(("H100",), 989.5e12, "NVIDIA H100 datasheet, SXM: 1,979 TFLOPS with sparsity, half of it dense"),
    PeakRow(("A100",), 312e12, "NVIDIA A100 datasheet: 312 TFLOPS dense, PCIe and SXM"),
    PeakRow(("RTX 4090",), 165.2e12, "NVIDIA Ada GPU architecture whitepaper: 165.2 TFLOPS dense, fp32 accumulation"),
    PeakRow(("L40S",), 362.05e12, "NVIDIA L40S datasheet: 362.05 TFLOPS dense"),
)


def peak_flops_per_s(device_name: str, dtype: str) -> float | None:
    """Dense peak in FLOP/s; ``None`` for a device or a type that no row is about."""
    if dtype not in _HALF:
        return None
    found = (row for row in PEAKS if all(word.lower() in device_name.lower() for word in row.words))
    return next((row.flops_per_s for row in found), None)
