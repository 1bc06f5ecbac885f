"""GPUs by NVML: names without starting CUDA in a process that is not to hold any GPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass

from pybench.worker.backend import UnsupportedError

_LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96


@dataclass(frozen=True)
class Gpu:
    """One GPU. ``index`` is NVML's, which is CUDA's too where CUDA_DEVICE_ORDER is PCI_BUS_ID."""

    index: int
    uuid: str
    name: str


def visible_gpus(visible: str) -> tuple[Gpu, ...]:
    """GPUs that ``visible``, a value of CUDA_VISIBLE_DEVICES, lists by UUID or index, in its order; all where empty.

    Raises :class:`UnsupportedError` when NVML can't be asked.
    """
    gpus = _all_gpus()
    if not visible:
        return gpus
    known = {key: gpu for gpu in gpus for key in (gpu.uuid, str(gpu.index))}
    return tuple(known[entry] for entry in visible.split(",") if entry in known)


def show_by_number(gpus: Sequence[Gpu]) -> None:
    """Have CUDA_VISIBLE_DEVICES list them by index, for libraries that take it for numbers."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu.index) for gpu in gpus)


def _all_gpus() -> tuple[Gpu, ...]:
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise UnsupportedError(f"no NVIDIA driver here: {error}") from error
    _call(nvml, "nvmlInit_v2")
    count = ctypes.c_uint()
    _call(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    return tuple(_gpu(nvml, index) for index in range(count.value))


def _gpu(nvml: ctypes.CDLL, index: int) -> Gpu:
    handle = ctypes.c_void_p()
    _call(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    return Gpu(index, _text(nvml, "nvmlDeviceGetUUID", handle), _text(nvml, "nvmlDeviceGetName", handle))


def _text(nvml: ctypes.CDLL, function: str, handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    _call(nvml, function, handle, buffer, ctypes.c_uint(_TEXT_BYTES))
    return buffer.value.decode(errors="replace")


def _call(nvml: ctypes.CDLL, function: str, *arguments: object) -> None:
    code = getattr(nvml, function)(*arguments)
    if code:
        raise UnsupportedError(f"{function} failed with NVML's code {code}")
