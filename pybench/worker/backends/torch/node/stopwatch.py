"""How long a device works."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from pybench.worker.backends.common_torch.timed_event import timed_event

_S_PER_MS = 1e-3
_S_PER_NS = 1e-9
# More than a host takes to queue one operation (30 us seen for a collective of torch), at the clock of today's GPUs.
_HOLD_CYCLES = 200_000


def timed_s(device: torch.device, work: Callable[[], object]) -> float:
    """Seconds from the first to the last thing that ``work`` gives the device: CUDA events, on a CPU the host's clock.

    Returns after the device is done.
    """
    if device.type == "cpu":
        start_ns = time.monotonic_ns()
        work()
        return (time.monotonic_ns() - start_ns) * _S_PER_NS
    start = timed_event()
    work()
    end = timed_event()
    end.synchronize()
    return float(start.elapsed_time(end)) * _S_PER_MS


def hold(device: torch.device, num_operations: int) -> None:
    """Keep the device from what is queued next for as long as the host needs to queue ``num_operations``.

    Where an operation takes the device less time than the host, the device would wait for the host between them. A CPU
    has no queue.
    """
    if device.type == "cuda":
        torch.cuda._sleep(num_operations * _HOLD_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001
