"""Messages between a worker and its host, as files of a folder: orders to the worker, events of each rank."""

from __future__ import annotations

import os
import platform
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath

from pybench.model.machine import RECORDED_PACKAGES
from pybench.model.wire import (
    ORDERS_FILE,
    Event,
    Header,
    Phase,
    Step,
    WorkOrder,
    encode_event,
    events_file,
    go_file,
    monotonic_offset_ns,
)

_PROC = Path("/proc")


@dataclass(frozen=True)
class Device:
    """The device one rank computes on. ``uuid`` is NVML's form, ``GPU-…``; ``None`` for a CPU.

    A rank that drives several GPUs names them all in ``uuids``. ``replica`` is the number of the replica it is part of.
    """

    kind: str
    name: str
    uuid: str | None = None
    uuids: tuple[str, ...] = ()
    replica: int = 0


def driver_version(text: str) -> str | None:
    """Version of the NVIDIA kernel module from the text of ``/proc/driver/nvidia/version``."""
    match = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)", text)
    return match[1] if match else None


def mapped_library(maps: str, name: str) -> str | None:
    """Path of the file mapped as ``name`` (or ``name.1``, …) in the text of ``/proc/self/maps`` (proc(5))."""
    # Address, permissions, offset, device, inode; a path may have spaces, and its file may be replaced meanwhile.
    match = re.search(rf"^(?:\S+ +){{5}}(/(?:.*/)?{re.escape(name)}(?:\.\d+)*)(?: \(deleted\))?$", maps, re.MULTILINE)
    return match[1] if match else None


def is_forward_compatible(cuda_library: str | None, driver: str | None) -> bool | None:
    """Whether libcuda comes from the image's compatibility package instead of the host's driver.

    That package lies in a folder ``compat`` (NVIDIA, "CUDA Compatibility"); elsewhere its file's version decides: the
    host's own is the kernel module's. ``None`` without libcuda, or where neither is known.
    """
    if cuda_library is None:
        return None
    path = PurePosixPath(cuda_library)
    if "compat" in path.parts[:-1]:
        return True
    version = re.search(r"\.so\.(\d+(?:\.\d+)+)$", path.name)
    if version is None or driver is None:
        return None
    library, kernel = ([int(part) for part in text.split(".")] for text in (version[1], driver))
    return library > kernel


def read_header(rank: int, world_size: int, device: Device) -> Header:
    """Header of this process, with its installed packages. A kernel without time namespaces has no offset."""
    packages = {}
    for name in RECORDED_PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    offsets = _PROC / "self/timens_offsets"
    driver = driver_version(_text(_PROC / "driver/nvidia/version"))
    cuda_library = mapped_library(_text(_PROC / "self/maps"), "libcuda.so")
    return Header(
        rank=rank,
        world_size=world_size,
        pid=os.getpid(),
        boot_id=(_PROC / "sys/kernel/random/boot_id").read_text().strip(),
        time_offset_ns=monotonic_offset_ns(offsets.read_text()) if offsets.exists() else 0,
        python=platform.python_version(),
        packages=packages,
        device=device.kind,
        device_name=device.name,
        device_uuid=device.uuid,
        device_uuids=device.uuids,
        replica=device.replica,
        driver=driver,
        cuda_library=cuda_library,
        forward_compatible=is_forward_compatible(cuda_library, driver),
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


_POLL_S = 0.01
# A host that sends nothing for so long is gone; between two orders it has a second's work.
_PATIENCE_S = 600.0


def read_orders(exchange: Path) -> tuple[WorkOrder, ...]:
    """All orders, the first one first. Raises ``ValueError``, ``KeyError`` or ``TypeError`` on anything else."""
    lines = (exchange / ORDERS_FILE).read_text(encoding="utf-8").splitlines()
    return tuple(WorkOrder.from_json(line) for line in lines)


def wait_for_go(exchange: Path, place: int) -> None:
    """Return once the host has kept the previous order's results. Raises ``TimeoutError`` when it sends nothing."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (exchange / go_file(place)).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the host did not release order {place} within {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)


_KIND_OF_STEP = {"warmup": "warm-up", "measure": "measured"}


class EventStream:
    """Appends one line for each event, each with one write, so that a killed rank leaves whole lines.

    ``at`` is what the rank does since the last event, which was written at ``last_ns`` of CLOCK_MONOTONIC.
    """

    def __init__(self, exchange: Path, rank: int) -> None:
        self.path = exchange / events_file(rank)
        self._file = self.path.open("ab", buffering=0)
        self.at = "before the first event"
        self.last_ns = time.monotonic_ns()

    def close(self) -> None:
        """Close the file; what was written is already in it."""
        self._file.close()

    def write(self, event: Event) -> None:
        """Append one event, and note where it leaves the rank."""
        self._file.write((encode_event(event) + "\n").encode())
        self.last_ns = time.monotonic_ns()
        if isinstance(event, Phase):
            self.at = f"in phase {event.name}"
        elif isinstance(event, Step):
            self.at = f"in {_KIND_OF_STEP[event.phase]} step {event.index + 1}"
