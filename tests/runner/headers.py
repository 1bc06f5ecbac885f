"""A rank's header, of which a test names what it looks at."""

from __future__ import annotations

from pybench.model.wire import Header


def header(**fields: object) -> Header:
    """The only rank, on a CPU, but for ``fields``."""
    about = {"rank": 0, "world_size": 1, "pid": 1, "boot_id": "b", "time_offset_ns": 0, "python": "3", "device": "cpu"}
    return Header(**{**about, "packages": {}, "device_name": "x", **fields})  # type: ignore[arg-type]
