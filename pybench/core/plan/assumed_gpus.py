"""A machine with GPUs that are not here, for a plan of what would run on them."""

from __future__ import annotations

import re
from dataclasses import replace

from pybench.core.gpu_models import compute_capability, known_kinds
from pybench.model.errors import UsageError
from pybench.model.machine import GpuInfo, Machine

_MIB_PER_GIB = 2**10
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


def with_gpus(machine: Machine, word: str | None, count: int | None) -> Machine:
    """``machine`` with ``count`` GPUs of the kind that ``word`` names, in the place of its own.

    ``word`` is a kind (``h200``), a kind and the memory of its cards in GB (``a100-40gb``), or a memory alone
    (``48gb``). ``None`` leaves the kind, or the number, as it is here; a number that nothing gives is 1. Raises
    ``UsageError`` for a kind that is not known, or without a memory that is.
    """
    if word is None and count is None:
        return machine
    if word is None:
        return _assumed(machine, machine.kind, _own_memory_gib(machine), count or 1, _own_capability(machine))
    kind, memory_gib = _kind_and_memory_gib(word)
    return _assumed(machine, kind, memory_gib, count or 1, compute_capability(kind))


def _assumed(machine: Machine, kind: str, memory_gib: float | None, count: int, capability: str | None) -> Machine:
    gpus = tuple(_gpu(index, kind, memory_gib, capability) for index in range(count))
    return replace(
        machine,
        kind=kind,
        fabric="none",
        gpu_count=count,
        gpu_names=(kind,) * count,
        gpu_vram_gib=(memory_gib,) * count,
        gpus=gpus,
        gpu_reason=None,
        gpu_faults=(),
        topology=(),
        memory_bytes=None,
    )


def _own_memory_gib(machine: Machine) -> float | None:
    if not machine.gpus:
        raise UsageError("--gpus: there is no GPU here to take the kind from; give it: --gpu h200")
    return min((gpu.vram_gib for gpu in machine.gpus if gpu.vram_gib is not None), default=None)


def _own_capability(machine: Machine) -> str | None:
    least = machine.devices.compute_capability
    return None if least is None else f"{least[0]}.{least[1]}"


def _kind_and_memory_gib(word: str) -> tuple[str, float]:
    """Kind and memory of a GPU. A size that is no card's of the kind is taken as whole GiB."""
    match = re.fullmatch(r"(?:(.+)-)?([1-9][0-9]{0,3})gb", word.lower())
    kind, size = match.groups() if match else (word.lower(), None)
    if kind is not None and kind not in known_kinds():
        valid = ", ".join(sorted(known_kinds()))
        forms = "a kind with its memory (a100-40gb), or a memory alone (48gb)"
        raise UsageError(f"--gpu {word}: no such kind; valid are {valid}, {forms}")
    sizes = _MEMORY_MIB.get(kind or "", {})
    if size is not None:
        found = sizes.get(int(size))
        return kind or f"unknown-{size}gb", float(size) if found is None else found / _MIB_PER_GIB
    if len(sizes) != 1:
        sold = " or ".join(f"{kind}-{size}gb" for size in sizes) or f"{kind}-NUMBERgb"
        raise UsageError(f"--gpu {word}: cards of that kind differ in memory; give {sold}")
    return str(kind), next(iter(sizes.values())) / _MIB_PER_GIB


def _gpu(index: int, kind: str, memory_gib: float | None, capability: str | None) -> GpuInfo:
    return GpuInfo(
        index=index,
        uuid=f"assumed-{index}",
        name=kind,
        vram_gib=memory_gib,
        pci_bus_id=None,
        compute_capability=capability,
        power_limit_w=None,
        power_limit_default_w=None,
        sm_clock_max_hz=None,
        memory_clock_max_hz=None,
        ecc_enabled=None,
        mig_enabled=None,
        persistence_enabled=None,
        pcie_generation=None,
        pcie_width=None,
        num_nvlinks=None,
    )
