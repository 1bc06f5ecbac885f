"""How long a device works."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_S_PER_MS = 1e-3
_S_PER_NS = 1e-9


def timed_s(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds from the first to the last thing that ``work`` gives the device: CUDA events, on a CPU the host's clock.

    Returns after the device is done.
    """
    if device.type == "cpu":
        start_ns = time.monotonic_ns()
        work()
        return (time.monotonic_ns() - start_ns) * _S_PER_NS
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * _S_PER_MS
