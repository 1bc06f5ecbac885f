"""XID errors in the kernel's log."""

from __future__ import annotations

import os
import re

from pybench.model.health import Xid

KERNEL_LOG = "/dev/kmsg"
# "6,1234,5678901,-;NVRM: Xid (PCI:0000:19:00): 79, pid=…": kmsg's prefix (Documentation/ABI/testing/dev-kmsg), then
# the driver's message (docs.nvidia.com, XID errors), which with MIG names the instance behind the slot.
_LINE = re.compile(r"^\d+,(\d+),[^;]*;.*NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)(?: GPU-C?I:\d+)*\): (\d+)")
_MAX_RECORD_BYTES = 8192


def read_xids(path: str = KERNEL_LOG) -> tuple[Xid, ...] | None:
    """Every XID that the log still holds; ``None`` where it can't be read (no such file, no permission)."""
    try:
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return tuple(xid for record in _records(log) if (xid := parse_xid(record)) is not None)
    except OSError:
        return None
    finally:
        os.close(log)


def parse_xid(record: str) -> Xid | None:
    """The XID in a record of ``/dev/kmsg``, if there is one."""
    found = _LINE.match(record)
    return Xid(sequence=int(found[1]), pci_bus_id=found[2], number=int(found[3])) if found else None


def _records(log: int) -> list[str]:
    """One read is one record. The end is EAGAIN; EPIPE means that records were overwritten before they were read."""
    records: list[str] = []
    while True:
        try:
            data = os.read(log, _MAX_RECORD_BYTES)
        except BlockingIOError:
            return records
        except BrokenPipeError:
            continue
        if not data:  # a plain file, which has an end
            return records
        records += data.decode(errors="replace").splitlines()
