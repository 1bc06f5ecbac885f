"""NVML's calls that the native sampler does not make: all calls of its Python binding.

A call is named as in NVML, without ``nvml``. It may hang in the driver: callers limit its
time by :func:`returned_within` or by a thread of their own.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pynvml

LIBRARY_VARIABLE = "PYBENCH_NVML_LIBRARY"
# A call that fails in passing is made so often, as the native sampler makes it.
_TRIES = 4

Answer = Any
"""Value from NVML's binding: a number, a text, a structure, a handle."""


class NvmlError(Exception):
    """A call failed, or this driver lacks it; with NVML's text for that."""


class NoDriverError(NvmlError):
    """There is no driver, or it does not start. ``code`` is NVML's; ``None`` where its library is not found."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def session() -> Iterator[None]:
    """Within, calls can be made. Raises ``NoDriverError``."""
    begin()
    try:
        yield
    finally:
        # A library that has no call for the end needs none.
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def open_library() -> None:
    """Open the library that the environment names, else the driver's. Raises ``NoDriverError``."""
    path = os.environ.get(LIBRARY_VARIABLE) or "libnvidia-ml.so.1"
    try:
        # Local symbols: a library opened later must not be bound to this one's functions.
        pynvml.nvmlLib = ctypes.CDLL(path)
    except OSError:
        raise NoDriverError(f"no NVIDIA driver: {path} not found") from None


def begin() -> None:
    """Open and initialise the library, an older driver by its own call. Raises ``NoDriverError``."""
    open_library()
    try:
        try:
            _persist(pynvml.nvmlInit)
        except pynvml.NVMLError_FunctionNotFound:
            older = getattr(pynvml.nvmlLib, "nvmlInit_v2", None) or getattr(pynvml.nvmlLib, "nvmlInit", None)
            if older is None:
                raise
            if code := older():
                raise pynvml.NVMLError(code) from None
    except pynvml.NVMLError as error:
        raise NoDriverError(f"NVML does not start: {error}", error.value) from None


def answer(name: str, *arguments: object) -> Answer:
    """The answer of a call, repeated after a passing failure; text is escaped UTF-8. Raises ``NvmlError``."""
    try:
        return _persist(getattr(pynvml, f"nvml{name}"), *arguments)
    except UnicodeDecodeError as error:
        return error.object.decode(errors="backslashreplace")
    except (pynvml.NVMLError, AttributeError) as error:
        raise NvmlError(str(error)) from None


def query(name: str, *arguments: object) -> Answer:
    """The answer of a call; ``None`` without one (not supported, no permission, no such call)."""
    try:
        return answer(name, *arguments)
    except NvmlError:
        return None


def fabric_info(handle: Any) -> Answer:  # noqa: ANN401 - NVML's handle
    """Structure of a GPU's NVSwitch fabric; ``None`` where the driver or an older binding has no such call."""
    kind = getattr(pynvml, "c_nvmlGpuFabricInfo_t", None)
    if kind is None:
        return None
    info = kind()
    return None if query("DeviceGetGpuFabricInfo", handle, ctypes.byref(info)) is None else info


def constant(name: str) -> int:
    """A number of ``nvml.h``, by its name without ``NVML_``."""
    return int(getattr(pynvml, f"NVML_{name}"))


def text(value: str | bytes | None) -> str | None:
    """A text, which older bindings give as bytes."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def _persist(call: Callable[..., Answer], *arguments: object) -> Answer:
    for _ in range(_TRIES - 1):
        with suppress(pynvml.NVMLError_Unknown, pynvml.NVMLError_Timeout):
            return call(*arguments)
    return call(*arguments)


_T = TypeVar("_T")


def returned_within(
    limit_s: float, call: Callable[[], _T], notice_s: float = 0.0, remind: Callable[[], None] | None = None
) -> list[_T]:
    """The call's answer in a list, empty after ``limit_s``; a thread calls, ``remind`` after ``notice_s``."""
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised by the caller's thread
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True, name=getattr(call, "__name__", "call")).start()
    if remind is not None and notice_s < limit_s:
        if wait([outcome], notice_s).not_done:
            remind()
        limit_s -= notice_s
    return [outcome.result()] if wait([outcome], limit_s).done else []
