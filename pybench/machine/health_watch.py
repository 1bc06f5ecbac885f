"""Watches the GPUs' own counts of trouble around an attempt."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self

from pybench.machine.gpu_processes import ProcessFacts, ProcessWatch
from pybench.machine.nvml import NvmlError, constant, query, session
from pybench.model.record import GpuCounters, Health, PcieLink, Xid

# Often enough to see a link awake in a step of some seconds, rarely enough to cost nothing.
_PERIOD_S = 0.5
# A driver call may hang for 45 s; the attempt must not.
_PATIENCE_S = 5.0


class HealthWatch:
    """Reads counters when entered and left, PCIe links and processes in between, in a thread of its own: NVML may hang.

    Without a driver, one that does not answer, or any GPU that does, what it has seen stays empty. A lost GPU among
    others stays unknown.
    """

    def __init__(self, uuids: Sequence[str], patience_s: float = _PATIENCE_S) -> None:
        self._uuids = tuple(uuids)
        self._patience_s = patience_s
        self._before: tuple[GpuCounters, ...] = ()
        self._after: tuple[GpuCounters, ...] = ()
        self._links: dict[str, PcieLink] = {}
        self._processes = ProcessWatch()
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="health")

    def __enter__(self) -> Self:
        self._xids = read_xids()
        self._thread.start()
        self._ready.wait(self._patience_s)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(self._patience_s)

    def health(self, is_foreign: Callable[[ProcessFacts], bool] = lambda _facts: False) -> Health | None:
        """Observations after the end, with ``is_foreign`` processes; ``None`` when there were none."""
        now = read_xids()
        known = {xid.sequence for xid in self._xids or ()}
        xids = None if now is None or self._xids is None else tuple(xid for xid in now if xid.sequence not in known)
        if not self._before and not xids:
            return None
        others = tuple(process for process, facts in self._processes.sightings() if is_foreign(facts))
        links = tuple(self._links.values())
        return Health(before=self._before, after=self._after, links=links, xids=xids, others=others)

    def _watch(self) -> None:
        try:
            with session():
                by_uuid = {uuid: query("DeviceGetHandleByUUID", uuid) for uuid in self._uuids}
                handles = {uuid: handle for uuid, handle in by_uuid.items() if handle is not None}
                if not handles:
                    return
                self._processes.look(handles)
                self._before = _counters(by_uuid)
                self._ready.set()
                over = False
                while not over:
                    over = self._over.wait(_PERIOD_S)
                    self._processes.look(handles)
                    self._read_links(handles)
                self._after = _counters(by_uuid)
        except NvmlError:
            pass  # a failing driver is reported by the sampler and the worker; here it means: unknown
        finally:
            self._ready.set()

    def _read_links(self, handles: dict[str, Any]) -> None:
        for uuid, handle in handles.items():
            link = PcieLink(
                uuid=uuid,
                generation=query("DeviceGetCurrPcieLinkGeneration", handle),
                generation_max=query("DeviceGetMaxPcieLinkGeneration", handle),
                width=query("DeviceGetCurrPcieLinkWidth", handle),
                width_max=query("DeviceGetMaxPcieLinkWidth", handle),
            )
            self._links[uuid] = _better(self._links.get(uuid), link)


def _counters(by_uuid: dict[str, Any]) -> tuple[GpuCounters, ...]:
    """The counters of each GPU by its NVML handle; unknown without one."""
    errors, volatile = "DeviceGetTotalEccErrors", constant("VOLATILE_ECC")
    counters = []
    for uuid, handle in by_uuid.items():
        if handle is None:
            counters.append(GpuCounters(uuid=uuid))
            continue
        corrected, uncorrected, pending, failed = query("DeviceGetRemappedRows", handle) or (None,) * 4
        of_gpu = GpuCounters(
            uuid=uuid,
            ecc_corrected=query(errors, handle, constant("MEMORY_ERROR_TYPE_CORRECTED"), volatile),
            ecc_uncorrected=query(errors, handle, constant("MEMORY_ERROR_TYPE_UNCORRECTED"), volatile),
            rows_remapped_corrected=corrected,
            rows_remapped_uncorrected=uncorrected,
            remap_pending=None if pending is None else bool(pending),
            remap_failed=None if failed is None else bool(failed),
        )
        counters.append(of_gpu)
    return tuple(counters)


def _better(seen: PcieLink | None, now: PcieLink) -> PcieLink:
    return now if seen is None or seen.speed < now.speed else seen


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
    records: list[str] = []
    try:
        while True:
            try:
                data = os.read(log, _MAX_RECORD_BYTES)  # one record
            except BrokenPipeError:
                continue  # records were overwritten before they were read
            except BlockingIOError:
                break
            if not data:  # a plain file, which has an end
                break
            records += data.decode(errors="replace").splitlines()
    except OSError:
        return None
    finally:
        os.close(log)
    return tuple(xid for record in records if (xid := parse_xid(record)) is not None)


def parse_xid(record: str) -> Xid | None:
    """The XID or fatal SXid in a record of ``/dev/kmsg``, if there is one."""
    match = _LINE.match(record) or _SWITCH.match(record) or _OFF_THE_BUS.match(record)
    if match is None:
        return None
    number = int(match.groupdict().get("number") or _OFF_THE_BUS_XID)
    of_switch = match.re is _SWITCH
    return Xid(sequence=int(match["sequence"]), pci_bus_id=match["slot"], number=number, of_switch=of_switch)
