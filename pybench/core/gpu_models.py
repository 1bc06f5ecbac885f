"""GPUs by the driver's name: the short name that profiles use, the maker's peaks, and memory of assumed GPUs.

Peaks are dense tensor-core FLOP/s and memory bandwidth. Sources: NVIDIA's data sheets of A100, H100, H200, L40S and DGX
B200 (figures "with sparsity" halved; DGX B200's over its eight GPUs), and the Ada GPU architecture whitepaper, appendix
A, for the RTX 4090 (with FP32 accumulation). Compute capabilities: NVIDIA's list "CUDA GPU Compute Capability".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache

from pybench.model.errors import UsageError
from pybench.model.machine import GpuInfo, Machine

_TERA = 1e12


@dataclass(frozen=True)
class GpuPeak:
    """Peaks of one GPU. ``half_tflops`` is for bfloat16 and float16; ``None`` where tensor cores lack the type."""

    half_tflops: float
    fp8_tflops: float | None
    memory_tb_per_s: float

    def flops_per_s(self, kind: str) -> float | None:
        """Peak for ``bfloat16``, ``float16`` or ``fp8``; ``None`` for other types."""
        tflops = {"bfloat16": self.half_tflops, "float16": self.half_tflops, "fp8": self.fp8_tflops}.get(kind)
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


# First match wins. PCIe and NVL boards have less power and other links, so they come before the SXM board; a superchip
# comes before its GPU.
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


def is_of_gpus(profile: str) -> bool:
    """Whether a profile has the name of a kind of GPU, of a GPU's memory, or of both."""
    return re.sub(r"-?[0-9]+gb$", "", profile) in {"", *(model.kind for model in _MODELS)}


_MIB_PER_GIB = 2**10
_ASSUMED = ("index", "uuid", "name", "vram_gib", "compute_capability")
# Memory in MiB as nvidia-smi reports it, by the GB that a card is sold with.
_MEMORY_MIB = {
    "gb200": {186: 189471},
    "gh200": {96: 97871},
    "b200": {180: 183359},
    "h200-nvl": {141: 143771},
    "h200": {141: 143771},
    "h100-nvl": {94: 95830},
    "h100-pcie": {80: 81559},
    "h100": {80: 81559},
    "a100-pcie": {40: 40960, 80: 81920},
    "a100": {40: 40960, 80: 81920},
    "l40s": {48: 46068},
    "rtx4090": {24: 24564},
    "rtx5090": {32: 32607},
    "v100": {16: 16384, 32: 32768},
}

_UNKNOWN: dict[str, None] = dict.fromkeys(
    field.name for field in fields(GpuInfo) if field.name not in _ASSUMED and field.default is MISSING
)


def with_gpus(machine: Machine, word: str | None, count: int | None) -> Machine:
    """``machine`` with ``count`` GPUs of the kind that ``word`` names, in the place of its own.

    ``word`` is a kind (``h200``), a kind and the memory of its cards in GB (``a100-40gb``), or a memory alone
    (``48gb``). ``None`` leaves the kind, or the number, as it is here; a number that nothing gives is 1. Raises
    ``UsageError`` for a kind that is not known, or without a memory that is.
    """
    if word is None and count is None:
        return machine
    count = count or 1
    kind, memory_gib, capability = machine.kind, None, None
    if word is not None:
        kind, memory_gib = _kind_and_memory_gib(word)
        capability = next((model.compute_capability for model in _MODELS if model.kind == kind), None)
    elif not machine.gpus:
        raise UsageError("--gpus: there is no GPU here to take the kind from; give it: --gpu h200")
    else:
        memory_gib = min((gpu.vram_gib for gpu in machine.gpus if gpu.vram_gib is not None), default=None)
        least = machine.devices.compute_capability
        capability = None if least is None else f"{least[0]}.{least[1]}"
    return replace(
        machine,
        kind=kind,
        fabric="none",
        gpu_count=count,
        gpu_names=(kind,) * count,
        gpu_vram_gib=(memory_gib,) * count,
        gpus=tuple(
            GpuInfo(
                index=index,
                uuid=f"assumed-{index}",
                name=kind,
                vram_gib=memory_gib,
                compute_capability=capability,
                **_UNKNOWN,
            )
            for index in range(count)
        ),
        gpu_reason=None,
        gpu_faults=(),
        topology=(),
        memory_bytes=None,
    )


def _kind_and_memory_gib(word: str) -> tuple[str, float]:
    """Kind and memory of a GPU. A size that is no card's of the kind is taken as whole GiB."""
    match = re.fullmatch(r"(?:(.+)-)?([1-9][0-9]{0,3})gb", word.lower())
    kind, size = match.groups() if match else (word.lower(), None)
    known = {model.kind for model in _MODELS}
    if kind is not None and kind not in known:
        valid = ", ".join(sorted(known))
        forms = "a kind with its memory (a100-40gb), or a memory alone (48gb)"
        raise UsageError(f"--gpu {word}: no such kind; valid are {valid}, {forms}")
    sizes = _MEMORY_MIB.get(kind or "", {})
    if size is not None:
        memory_mib = sizes.get(int(size))
        return kind or f"unknown-{size}gb", float(size) if memory_mib is None else memory_mib / _MIB_PER_GIB
    if len(sizes) != 1:
        sold = " or ".join(f"{kind}-{size}gb" for size in sizes) or f"{kind}-NUMBERgb"
        raise UsageError(f"--gpu {word}: cards of that kind differ in memory; give {sold}")
    return str(kind), next(iter(sizes.values())) / _MIB_PER_GIB
