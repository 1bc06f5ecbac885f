"""The kernel's log: errors of GPUs and NVSwitches, and processes that it ended for want of memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pybench.model.health import Xid

KERNEL_LOG = "/dev/kmsg"
# "6,1234,5678901,-;NVRM: Xid (PCI:0000:19:00): 79, pid=…": kmsg's prefix (Documentation/ABI/testing/dev-kmsg), then
# the driver's message (docs.nvidia.com, XID errors), which with MIG names the instance behind the slot.
_BEFORE = r"^\d+,(?P<sequence>\d+),[^;]*;.*"
_LINE = re.compile(_BEFORE + r"NVRM: Xid \(PCI:(?P<slot>[0-9A-Fa-f:.]+)(?: GPU-C?I:\d+)*\): (?P<number>\d+)")
# The fabric manager's guide: "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up".
_SWITCH = re.compile(_BEFORE + r"nvswitch\d+: SXid \(PCI:(?P<slot>[0-9A-Fa-f:.]+)\): (?P<number>\d+), Fatal")
# Without an Xid where the driver notices it first: "NVRM: GPU 0000:19:00.0: GPU has fallen off the bus."
_OFF_THE_BUS = re.compile(
    _BEFORE + r"NVRM: .*?(?P<slot>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}).*fallen off the bus"
)
_OFF_THE_BUS_XID = 79
_MAX_RECORD_BYTES = 8192


def read_xids(path: str = KERNEL_LOG) -> tuple[Xid, ...] | None:
    """Every XID and fatal SXid that the log still holds; ``None`` where it is missing or may not be read."""
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
    """The XID or fatal SXid in a record of ``/dev/kmsg``, if there is one."""
    found = _LINE.match(record) or _SWITCH.match(record) or _OFF_THE_BUS.match(record)
    if found is None:
        return None
    number = int(found.groupdict().get("number") or _OFF_THE_BUS_XID)
    of_switch = found.re is _SWITCH
    return Xid(sequence=int(found["sequence"]), pci_bus_id=found["slot"], number=number, of_switch=of_switch)


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


VMSTAT = Path("/proc/vmstat")
_NAME = "oom_kill"


def num_oom_kills(path: Path = VMSTAT) -> int | None:
    """Since the host started, of all control groups together; ``None`` where the kernel does not count them.

    Linux counts them in ``/proc/vmstat`` since 4.13, inside containers too.
    """
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = (line.split() for line in lines)
    return next((int(words[1]) for words in found if len(words) == 2 and words[0] == _NAME), None)  # noqa: PLR2004
