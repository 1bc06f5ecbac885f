"""The devices of each host that the points of a plan may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

DeviceKind = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class Devices:
    """``count`` GPUs, or CPU cores of a host without GPUs, on each of ``num_hosts``.

    ``memory_bytes`` is the memory of the smallest GPU, ``host_memory_bytes`` a host's memory, ``compute_capability``
    the lowest of the GPUs; ``None`` is unknown. The devices of a plan for another machine are ``assumed``.
    """

    kind: DeviceKind
    count: int
    num_hosts: int = 1
    memory_bytes: float | None = None
    host_memory_bytes: float | None = None
    compute_capability: tuple[int, int] | None = None
    assumed: bool = False


class IndexedGpu(Protocol):
    """A GPU by NVML's names."""

    @property
    def index(self) -> int:
        """NVML's index: CUDA's too where CUDA_DEVICE_ORDER is PCI_BUS_ID."""

    @property
    def uuid(self) -> str:
        """NVML's form, ``GPU-…``."""


_Gpu = TypeVar("_Gpu", bound=IndexedGpu)


def visible(gpus: Sequence[_Gpu], setting: str | None) -> tuple[_Gpu, ...]:
    """The GPUs that a value of CUDA_VISIBLE_DEVICES lists, in its order; all where it is not set.

    Entries are indices, or UUIDs and their beginnings. As in CUDA, the first entry that is not known ends the list,
    and a GPU that is listed twice leaves none.
    """
    if setting is None:
        return tuple(gpus)
    kept: list[_Gpu] = []
    for entry in (part.strip() for part in setting.split(",")):
        match = [g for g in gpus if (entry == str(g.index) if entry.isdigit() else entry and g.uuid.startswith(entry))]
        if len(match) != 1:
            break
        if match[0] in kept:
            return ()
        kept.append(match[0])
    return tuple(kept)
