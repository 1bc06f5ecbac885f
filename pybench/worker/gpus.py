"""GPUs by NVML: names without starting CUDA in a process that must not hold a GPU, memory, and NVLink traffic."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from pybench.model.machine import visible
from pybench.model.wire import Event, Metric, Phase, Step
from pybench.worker.backend import UnsupportedError

_LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96
# NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and the scope that adds all links up, of nvml.h.
_NVLINK_SENT_KIB = 138
_ALL_LINKS = 2**32 - 1
_BYTES_PER_KIB = 1024
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Gpu:
    """One GPU. ``index`` is NVML's, which is CUDA's too where CUDA_DEVICE_ORDER is PCI_BUS_ID."""

    index: int
    uuid: str
    name: str


def visible_gpus() -> tuple[Gpu, ...]:
    """GPUs that CUDA_VISIBLE_DEVICES leaves visible to this process, in its order.

    GPUs that can't be queried, such as a lost one, are left out. Raises :class:`UnsupportedError` when NVML does not
    answer, or none of them does.
    """
    # The variable is empty for a point without GPUs, and in a container that sees only its own GPUs.
    return visible(_all_gpus(), os.environ.get(VISIBLE_DEVICES) or None)


def nvml_uuid(uuid: object) -> str:
    """A GPU's UUID in NVML's form; libraries leave out ``GPU-``."""
    text = str(uuid)
    return text if text.startswith("GPU-") else f"GPU-{text}"


def show_by_number(gpus: Sequence[Gpu]) -> None:
    """Have CUDA_VISIBLE_DEVICES list them by index, for libraries that take it for numbers."""
    os.environ[VISIBLE_DEVICES] = ",".join(str(gpu.index) for gpu in gpus)


def used_bytes(uuid: str) -> int:
    """Memory in use on a GPU, by every process and the driver. Needs no CUDA context there."""
    memory = (ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used
    _call("nvmlDeviceGetMemoryInfo", _handle(uuid), ctypes.byref(memory))
    return memory[2]


class _FieldValue(ctypes.Structure):
    """nvmlFieldValue_t; of its value the one type that a counter has."""

    _fields_ = (
        ("field_id", ctypes.c_uint),
        ("scope_id", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency_us", ctypes.c_longlong),
        ("value_type", ctypes.c_int),
        ("code", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    )


def nvlink_sent_bytes(uuid: str) -> int | None:
    """Data that a GPU has sent over all its NVLinks, headers left out; ``None`` where the driver does not count it."""
    sent = _FieldValue(field_id=_NVLINK_SENT_KIB, scope_id=_ALL_LINKS)
    try:
        _call("nvmlDeviceGetFieldValues", _handle(uuid), ctypes.c_int(1), ctypes.byref(sent))
    except (UnsupportedError, AttributeError):  # no driver, or one without this call
        return None
    return None if sent.code else int(sent.value) * _BYTES_PER_KIB


def _all_gpus() -> tuple[Gpu, ...]:
    count = ctypes.c_uint()
    _call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    gpus, fault = [], None
    for index in range(count.value):
        handle = ctypes.c_void_p()
        try:
            _call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            gpus.append(Gpu(index, _text("nvmlDeviceGetUUID", handle), _text("nvmlDeviceGetName", handle)))
        except UnsupportedError as error:  # a lost one: the host has left it out
            fault = error
    if fault and not gpus:
        raise fault
    return tuple(gpus)


def _handle(uuid: str) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(handle))
    return handle


def _text(function: str, handle: ctypes.c_void_p) -> str:
    buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    _call(function, handle, buffer, ctypes.c_uint(_TEXT_BYTES))
    return buffer.value.decode(errors="replace")


def _call(function: str, *arguments: object) -> None:
    if code := getattr(_nvml(), function)(*arguments):
        raise UnsupportedError(f"{function} failed with NVML's code {code}")


@cache
def _nvml() -> ctypes.CDLL:
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise UnsupportedError(f"no NVIDIA driver here: {error}") from error
    if code := nvml.nvmlInit_v2():
        raise UnsupportedError(f"nvmlInit_v2 failed with NVML's code {code}")
    return nvml


class NvlinkTraffic:
    """Reads the counters of ``uuids`` twice: before the first measured step, and after the last.

    No rank is in a measured step before all of them have read, and none goes on before the last step has ended on all.
    """

    def __init__(self, uuids: Sequence[str], read: Callable[[str], int | None] = nvlink_sent_bytes) -> None:
        self._uuids = tuple(uuids)
        self._num_steps = 0
        self._read = read
        self._counts: list[int | None] = []

    def note(self, event: Event) -> None:
        """Read as measuring begins and ends, and count the steps between."""
        self._num_steps += isinstance(event, Step) and event.phase == "measure"
        if self._uuids and isinstance(event, Phase) and event.name in {"measure", "finish"}:
            known = [count for uuid in self._uuids if (count := self._read(uuid)) is not None]
            self._counts.append(sum(known) if len(known) == len(self._uuids) else None)

    def metrics(self) -> tuple[Metric, ...]:
        """Bytes of a step; nothing where a counter is unknown, or was set back meanwhile."""
        if not self._num_steps or len(self._counts) < 2 or None in self._counts:  # noqa: PLR2004 - begin and end
            return ()
        before, after = (count or 0 for count in self._counts)
        if after < before:
            return ()
        return (Metric(name="nvlink_sent_bytes", value=(after - before) / self._num_steps, unit="bytes"),)
