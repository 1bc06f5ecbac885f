"""CLOCK_MONOTONIC in a time namespace."""

from __future__ import annotations

_NS_PER_S = 1_000_000_000


def monotonic_offset_ns(timens_offsets: str) -> int:
    """Offset of CLOCK_MONOTONIC in ns, from the text of ``/proc/self/timens_offsets``; 0 where it names none.

    Source: time_namespaces(7); kernels name the clock "monotonic" or by its number, 1.
    """
    for line in timens_offsets.splitlines():
        clock, seconds, nanoseconds = line.split()
        if clock in {"monotonic", "1"}:
            return int(seconds) * _NS_PER_S + int(nanoseconds)
    return 0
