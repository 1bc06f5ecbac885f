"""Memory this rank's backend held at most."""

from __future__ import annotations

import resource

import torch

from pybench.model.wire import Metric

_BYTES_PER_KIB = 1024


def memory_metrics(device: torch.device) -> tuple[Metric, ...]:
    """Peak device memory; on the CPU the process's peak resident set (getrusage(2), KiB on Linux)."""
    if device.type == "cpu":
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_KIB
        return (Metric(name="peak_memory_bytes", value=peak, unit="bytes"),)
    return (
        Metric(name="peak_memory_bytes", value=torch.cuda.max_memory_allocated(device), unit="bytes"),
        Metric(name="peak_reserved_memory_bytes", value=torch.cuda.max_memory_reserved(device), unit="bytes"),
    )
