"""A second CUDA context, made and destroyed, after which the driver replays a CUDA graph at its faster speed."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def make_and_destroy_context(device: torch.device) -> bool:
    """Make a second context on ``device``, a GPU by its number, and destroy it; the thread's own is current again.

    A CUDA graph of many small kernels has one of two speeds by the gaps between its kernels, and chance decides when it
    changes. A recorded graph has the faster one once another context on its GPU was made and destroyed: attempts then
    have one speed (docs/results/h100.md). Which part of the driver does so is not known.

    Returns whether the driver did it. A GPU in exclusive-process mode refuses a second context, a full one has no room.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    handle, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuDeviceGet(ctypes.byref(handle), ctypes.c_int(device.index)):
        return False
    if driver.cuCtxCreate_v2(ctypes.byref(context), ctypes.c_uint(0), handle):
        return False
    return not driver.cuCtxDestroy_v2(context)
