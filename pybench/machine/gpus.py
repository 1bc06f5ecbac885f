"""This machine's GPUs, as NVML reports them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pybench.machine.nvml import (
    LIBRARY_VARIABLE,
    NoDriverError,
    NvmlError,
    answer,
    constant,
    fabric_info,
    query,
    returned_within,
    session,
    text,
)
from pybench.model.errors import MachineError
from pybench.model.machine import GpuInfo, GpuInventory, visible

# Without persistence mode a driver initialises each GPU first: 10 to 40 s for eight and more (nvidia-docker 628).
LIMIT_S = 60.0
_NOTICE_S = 5.0
"""Seconds without an answer before the user sees a line."""
_NVIDIA, _DISPLAY = "0x10de", "0x03"
"""PCI vendor, and the first byte of the PCI class of displays and 3D controllers."""
_LOOK = "see nvidia-smi, and the kernel's log: dmesg | grep NVRM"
_FILES = "give this user the device files /dev/nvidia*: their group, or --gpus all of the container"
_NO_LIBRARY = "install the driver's libraries; a container gets them by --gpus all"
_SLOW = "turn on persistence mode: nvidia-smi -pm 1"
_NO_GPU = f"a container gets GPUs by --gpus all; otherwise {_LOOK}"
_REMEDIES = {
    4: _FILES,
    9: "load the driver: modprobe nvidia; after an update restart the machine",
    18: "the driver was updated while its old module runs: restart the machine",
    999: f"start the container again if this is one (daemon-reload takes its devices away); otherwise {_LOOK}",
}
"""By the code of nvmlInit: no permission, driver not loaded, library and module differ, unknown error."""
_FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}
"""By nvmlGpuFabricInfo_t.state; 0 is a GPU without an NVSwitch fabric."""
_GIB = 2**30
_MHZ = 1e6
_MILLI = 1e-3

_COMMON_ANCESTOR = {
    "TOPOLOGY_INTERNAL": "X",
    "TOPOLOGY_SINGLE": "PIX",
    "TOPOLOGY_MULTIPLE": "PXB",
    "TOPOLOGY_HOSTBRIDGE": "PHB",
    "TOPOLOGY_NODE": "NODE",
    "TOPOLOGY_SYSTEM": "SYS",
}


def find_gpus(limit_s: float = LIMIT_S, notify: Callable[[str], None] | None = None) -> GpuInventory:
    """List the GPUs that CUDA_VISIBLE_DEVICES leaves visible.

    Without any, ``reason`` says why; ``remedy`` says what to do where hardware or a driver is there. A driver that has
    not answered within ``limit_s`` is one that fails: its call is left to end by itself.
    """
    waiting = f"waiting up to {limit_s:g} s for the NVIDIA driver"
    inventories = returned_within(limit_s, _find_gpus, _NOTICE_S, lambda: notify(waiting) if notify else None)
    return inventories[0] if inventories else _nothing(f"the driver has not answered for {limit_s:g} s", _SLOW)


def hardware_sign(root: Path = Path("/")) -> str | None:
    """Signs of an NVIDIA GPU or driver without NVML, GPUs of virtual machines excepted; ``None`` for nothing."""
    if (root / "proc/driver/nvidia").exists():
        return "/proc/driver/nvidia is there"
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        try:
            vendor, kind = ((device / name).read_text(errors="replace").strip() for name in ("vendor", "class"))
        except OSError:
            continue
        is_given_away = (device / "driver").resolve().name == "vfio-pci"
        if vendor == _NVIDIA and kind.startswith(_DISPLAY) and not is_given_away:
            return f"PCI device {device.name} is an NVIDIA GPU"
    return None


def gpus_to_measure() -> GpuInventory:
    """As :func:`find_gpus`, with a GPU at least. Raises ``MachineError`` where there is none."""
    inventory = find_gpus()
    if not inventory.gpus:
        raise MachineError(f"no power to measure: {inventory.reason}; {inventory.remedy or 'see pybench doctor'}")
    return inventory


def _find_gpus() -> GpuInventory:
    """As :func:`find_gpus`, without a limit. GPUs that can't be queried are reported as faults."""
    try:
        with session():
            return _inventory()
    except NoDriverError as error:
        if error.code is not None:
            return _nothing(str(error), _REMEDIES.get(error.code, _LOOK))
        # A library that the environment names stands for the whole driver.
        sign = None if os.environ.get(LIBRARY_VARIABLE) else hardware_sign()
        return _nothing(str(error)) if sign is None else _nothing(f"{error}, but {sign}", _NO_LIBRARY)
    except NvmlError as error:
        return _nothing(f"NVML fails: {error}", _LOOK)


def _inventory() -> GpuInventory:
    usable, faults = _survey(answer("DeviceGetCount"))
    gpus = [gpu for gpu, _ in usable]
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    kept, handles = visible(gpus, setting), {gpu.index: handle for gpu, handle in usable}
    chosen = [handles[gpu.index] for gpu in kept]
    number = query("SystemGetCudaDriverVersion_v2")
    reason = remedy = None
    if not kept and gpus:
        named = f", by {setting}: list whole GPUs by index or UUID, each once" if setting else ""
        reason = "; ".join((f"CUDA_VISIBLE_DEVICES hides every GPU{named}", *faults))
        remedy = "name whole GPUs, not MIG instances, or unset CUDA_VISIBLE_DEVICES"
    elif not kept:
        reason = "; ".join(faults) or "the driver lists no GPU"
        remedy = f"repair them; {_LOOK}" if faults else _NO_GPU
    return GpuInventory(
        gpus=kept,
        driver=text(query("SystemGetDriverVersion")),
        cuda_driver=None if number is None else f"{number // 1000}.{number % 1000 // 10}",
        topology=tuple(tuple(_link(a, b) for b in chosen) for a in chosen),
        reason=reason,
        remedy=None if hides_all() else remedy,
        faults=faults,
    )


def hides_all() -> bool:
    """Whether CUDA_VISIBLE_DEVICES asks for no GPU at all: it is set, and empty or -1."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in {"", "-1"}


def _survey(count: int) -> tuple[list[tuple[GpuInfo, Any]], tuple[str, ...]]:
    """Every GPU that answers and takes programs, with its handle; of the others, why they don't."""
    usable, faults = [], []
    for index in range(count):
        try:
            handle = answer("DeviceGetHandleByIndex", index)
            gpu = _describe(index, handle)
        except (NvmlError, UnicodeDecodeError) as error:
            faults.append(f"GPU {index} can't be queried: {error}")
            continue
        if query("DeviceGetComputeMode", handle) == constant("COMPUTEMODE_PROHIBITED"):
            remedy = f"nvidia-smi -i {index} -c DEFAULT allows them"
            faults.append(f"GPU {index} takes no programs, by its compute mode Prohibited; {remedy}")
        else:
            usable.append((gpu, handle))
    return usable, tuple(faults)


def _nothing(reason: str, remedy: str | None = None) -> GpuInventory:
    remedy = None if hides_all() else remedy
    return GpuInventory(gpus=(), driver=None, cuda_driver=None, topology=(), reason=reason, remedy=remedy)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _flag(value: Any) -> bool | None:  # noqa: ANN401 - a mode, or (current, pending)
    current = value[0] if isinstance(value, list | tuple) else value
    return None if current is None else bool(current)


def _describe(index: int, handle: Any) -> GpuInfo:  # noqa: ANN401 - NVML's handle
    memory = query("DeviceGetMemoryInfo", handle)
    pci = query("DeviceGetPciInfo", handle)
    capability = query("DeviceGetCudaComputeCapability", handle)
    limit = query("DeviceGetEnforcedPowerLimit", handle)
    default = query("DeviceGetPowerManagementDefaultLimit", handle)
    uuid = text(answer("DeviceGetUUID", handle)) or ""
    if not uuid.isascii() or "\\" in uuid:
        raise NvmlError(f"its UUID is unreadable: {uuid}")
    info = fabric_info(handle)
    fabric = None if info is None else _FABRIC_STATES.get(info.state)
    links = [state for _, state in _nvlink_states(handle)]
    return GpuInfo(
        index=index,
        uuid=uuid,
        name=text(answer("DeviceGetName", handle)) or "",
        vram_gib=None if memory is None else round(memory.total / _GIB, 2),
        pci_bus_id=None if pci is None else text(pci.busId),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        power_limit_w=_scaled(limit, _MILLI),
        power_limit_default_w=_scaled(default, _MILLI),
        sm_clock_max_hz=_scaled(query("DeviceGetMaxClockInfo", handle, constant("CLOCK_SM")), _MHZ),
        memory_clock_max_hz=_scaled(query("DeviceGetMaxClockInfo", handle, constant("CLOCK_MEM")), _MHZ),
        ecc_enabled=_flag(query("DeviceGetEccMode", handle)),
        mig_enabled=_flag(query("DeviceGetMigMode", handle)),
        persistence_enabled=_flag(query("DeviceGetPersistenceMode", handle)),
        pcie_generation=query("DeviceGetCurrPcieLinkGeneration", handle),
        pcie_width=query("DeviceGetCurrPcieLinkWidth", handle),
        num_nvlinks=sum(links) if links else None,
        serial=text(query("DeviceGetSerial", handle)),
        fabric=f"{fabric} with error {info.status}" if fabric == "completed" and info.status else fabric,
    )


def _nvlink_states(handle: Any) -> list[tuple[int, int]]:  # noqa: ANN401 - NVML's handle
    states = [(link, query("DeviceGetNvLinkState", handle, link)) for link in range(constant("NVLINK_MAX_LINKS"))]
    return [(link, state) for link, state in states if state is not None]


def _link(a: Any, b: Any) -> str:  # noqa: ANN401 - NVML's handles
    """Name the way between two GPUs: NV<links> over NVLink, else their common ancestor on PCIe."""
    if a is b:
        return "X"
    status, pci = query("DeviceGetP2PStatus", a, b, constant("P2P_CAPS_INDEX_NVLINK")), query("DeviceGetPciInfo", b)
    links = 0
    for link in (link for link, state in _nvlink_states(a) if state):
        # A link may end at a switch that leads to every GPU.
        at_gpu = query("DeviceGetNvLinkRemoteDeviceType", a, link) == constant("NVLINK_DEVICE_TYPE_GPU")
        remote = query("DeviceGetNvLinkRemotePciInfo", a, link) if at_gpu else None
        links += remote is None or pci is None or text(remote.busId) == text(pci.busId)
    if status == constant("P2P_STATUS_OK") and links:
        return f"NV{links}"
    level = query("DeviceGetTopologyCommonAncestor", a, b)
    return {constant(name): short for name, short in _COMMON_ANCESTOR.items()}.get(level, "?")
