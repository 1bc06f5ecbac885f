"""This machine's GPUs, as NVML reports them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pynvml

from pybench.machine.time_limit import returned_within
from pybench.model.machine import GpuInfo, GpuInventory
from pybench.model.visible_gpus import visible

LIBRARY_VARIABLE = "PYBENCH_NVML_LIBRARY"
# A healthy driver lists eight GPUs in a second or two, also where it has to wake them.
LIMIT_S = 10.0
# A call that fails in passing is made so often, as the native sampler makes it.
_TRIES = 4
_GIB = 2**30
_MHZ = 1e6
_MILLI = 1e-3
_T = TypeVar("_T")

_COMMON_ANCESTOR = {
    "NVML_TOPOLOGY_INTERNAL": "X",
    "NVML_TOPOLOGY_SINGLE": "PIX",
    "NVML_TOPOLOGY_MULTIPLE": "PXB",
    "NVML_TOPOLOGY_HOSTBRIDGE": "PHB",
    "NVML_TOPOLOGY_NODE": "NODE",
    "NVML_TOPOLOGY_SYSTEM": "SYS",
}


def find_gpus(limit_s: float = LIMIT_S) -> GpuInventory:
    """List the GPUs that CUDA_VISIBLE_DEVICES leaves visible. No driver is a state with a reason, not an error.

    Nor is one that has not answered within ``limit_s``: its call is left to end by itself.
    """
    found = returned_within(limit_s, _find_gpus)
    return found[0] if found else _nothing(f"the driver has not answered for {limit_s:g} s")


def _find_gpus() -> GpuInventory:
    """As :func:`find_gpus`, without a limit.

    A GPU that can't be queried, such as a lost one, is left out and reported; the others stay.
    """
    reason = open_library()
    if reason is not None:
        return _nothing(reason)
    try:
        start_nvml()
    except pynvml.NVMLError as error:
        return _nothing(f"NVML does not start: {error}")
    try:
        found, faults = _survey(persist(pynvml.nvmlDeviceGetCount))
        gpus = [gpu for gpu, _ in found]
        kept = visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
        handles = {gpu.index: handle for gpu, handle in found}
        chosen = [handles[gpu.index] for gpu in kept]
        return GpuInventory(
            gpus=kept,
            driver=_text(query(pynvml.nvmlSystemGetDriverVersion)),
            cuda_driver=_cuda_version(query(pynvml.nvmlSystemGetCudaDriverVersion_v2)),
            topology=tuple(tuple(_link(a, b) for b in chosen) for a in chosen),
            reason=None if kept else _why_none(gpus, faults),
            faults=faults,
        )
    except pynvml.NVMLError as error:
        return _nothing(f"NVML fails: {error}")
    finally:
        stop_nvml()


def start_nvml() -> None:
    """Begin to use the library; one of before ``nvmlInitWithFlags``, too. Raises ``pynvml.NVMLError``."""
    try:
        persist(pynvml.nvmlInit)
    except pynvml.NVMLError_FunctionNotFound:
        older = getattr(pynvml.nvmlLib, "nvmlInit_v2", None) or getattr(pynvml.nvmlLib, "nvmlInit", None)
        if older is None:
            raise
        if code := older():
            raise pynvml.NVMLError(code) from None


def stop_nvml() -> None:
    """End its use; a library that has no call for that needs none."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def _survey(count: int) -> tuple[list[tuple[GpuInfo, Any]], tuple[str, ...]]:
    """Every GPU that answers, with its handle; of the others, why they don't."""
    found, faults = [], []
    for index in range(count):
        try:
            handle = persist(pynvml.nvmlDeviceGetHandleByIndex, index)
            found.append((_describe(index, handle), handle))
        except pynvml.NVMLError as error:
            faults.append(f"GPU {index} can't be queried: {error}")
    return found, tuple(faults)


def _why_none(gpus: Sequence[GpuInfo], faults: Sequence[str]) -> str:
    if gpus:
        return "; ".join(("CUDA_VISIBLE_DEVICES hides every GPU", *faults))
    return "; ".join(faults) or "the driver lists no GPU"


def open_library() -> str | None:
    """Give pynvml the library that the environment names, else the driver's. Returns why there is none."""
    path = os.environ.get(LIBRARY_VARIABLE) or "libnvidia-ml.so.1"
    try:
        # Local symbols: a library opened later must not be bound to this one's functions.
        pynvml.nvmlLib = ctypes.CDLL(path)
    except OSError:
        return f"no NVIDIA driver: {path} not found"
    return None


def _nothing(reason: str) -> GpuInventory:
    return GpuInventory(gpus=(), driver=None, cuda_driver=None, topology=(), reason=reason)


def query(call: Callable[..., _T], *arguments: Any) -> _T | None:  # noqa: ANN401 - NVML's handles
    """Answer of one NVML call; ``None`` where the driver has none to give (not supported, no permission)."""
    try:
        return persist(call, *arguments)
    except (pynvml.NVMLError, AttributeError):
        return None


def persist(call: Callable[..., _T], *arguments: Any) -> _T:  # noqa: ANN401 - NVML's handles
    """Answer of one NVML call, made again at once where it fails in passing. Raises ``pynvml.NVMLError``."""
    for _ in range(_TRIES - 1):
        with suppress(pynvml.NVMLError_Unknown, pynvml.NVMLError_Timeout):
            return call(*arguments)
    return call(*arguments)


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _flag(value: Any) -> bool | None:  # noqa: ANN401 - a mode, or (current, pending)
    current = value[0] if isinstance(value, list | tuple) else value
    return None if current is None else bool(current)


def _describe(index: int, handle: Any) -> GpuInfo:  # noqa: ANN401 - NVML's handle
    memory = query(pynvml.nvmlDeviceGetMemoryInfo, handle)
    pci = query(pynvml.nvmlDeviceGetPciInfo, handle)
    capability = query(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    limit = query(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    default = query(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)
    return GpuInfo(
        index=index,
        uuid=_text(persist(pynvml.nvmlDeviceGetUUID, handle)) or "",
        name=_text(persist(pynvml.nvmlDeviceGetName, handle)) or "",
        vram_gb=None if memory is None else round(memory.total / _GIB, 2),
        pci_bus_id=None if pci is None else _text(pci.busId),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        power_limit_w=_scaled(limit, _MILLI),
        power_limit_default_w=_scaled(default, _MILLI),
        sm_clock_max_hz=_scaled(query(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM), _MHZ),
        memory_clock_max_hz=_scaled(query(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_MEM), _MHZ),
        ecc_enabled=_flag(query(pynvml.nvmlDeviceGetEccMode, handle)),
        mig_enabled=_flag(query(pynvml.nvmlDeviceGetMigMode, handle)),
        persistence_enabled=_flag(query(pynvml.nvmlDeviceGetPersistenceMode, handle)),
        pcie_generation=query(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        pcie_width=query(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        num_nvlinks=_active_nvlinks(handle),
        serial=_text(query(pynvml.nvmlDeviceGetSerial, handle)),
    )


def _active_nvlinks(handle: Any) -> int | None:  # noqa: ANN401 - NVML's handle
    states = [query(pynvml.nvmlDeviceGetNvLinkState, handle, link) for link in range(pynvml.NVML_NVLINK_MAX_LINKS)]
    known = [state for state in states if state is not None]
    return sum(known) if known else None


def _link(a: Any, b: Any) -> str:  # noqa: ANN401 - NVML's handles
    """Name the way between two GPUs: NV<links> over NVLink, else their common ancestor on PCIe."""
    level = query(pynvml.nvmlDeviceGetTopologyCommonAncestor, a, b)
    names = {getattr(pynvml, name): short for name, short in _COMMON_ANCESTOR.items()}
    if a is b:
        return "X"
    status = query(pynvml.nvmlDeviceGetP2PStatus, a, b, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    links = _active_nvlinks(a)
    if status == pynvml.NVML_P2P_STATUS_OK and links:
        return f"NV{links}"
    return names.get(level, "?") if level is not None else "?"


def _cuda_version(number: int | None) -> str | None:
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"
