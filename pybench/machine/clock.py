"""Identity of this host's CLOCK_MONOTONIC."""

from __future__ import annotations

from pathlib import Path

from pybench.model.wire import monotonic_offset_ns


def host_clock() -> tuple[str, int]:
    """Boot id and this process's time-namespace offset in ns: equal on both sides, times can be joined.

    The offset is 0 on kernels without time namespaces (before 5.6). Source: time_namespaces(7).
    """
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    try:
        offsets = Path("/proc/self/timens_offsets").read_text(encoding="ascii")
    except OSError:
        return boot_id, 0
    return boot_id, monotonic_offset_ns(offsets)
