"""How much of each GPU a point used: memory and utilisation, over its attempts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import fmean

from pybench.model.gpu_state import GpuUse
from pybench.model.record import Record

_LAYERS = re.compile(r"gpu_(\d{1,4})_layers")
_MEMORY = ("peak_memory_bytes", "peak_reserved_memory_bytes", "device_memory_used_bytes")


def gpu_use(records: Sequence[Record]) -> tuple[GpuUse, ...]:
    """One for each GPU that a rank or the sampler names, in the order of the ranks.

    A rank that drives several GPUs reports the memory of its fullest one: that of each is not known then, only
    the layers that lie on it.
    """
    reported: dict[str, dict[str, list[float]]] = {}
    for uuid, name, value in (found for record in records for found in _reported(record)):
        reported.setdefault(uuid, {}).setdefault(name, []).append(value)
    busy: dict[str, list[float]] = {}
    for gpu in (gpu for record in records for gpu in record.conditions if gpu.utilization_fraction is not None):
        busy.setdefault(gpu.uuid, []).append(gpu.utilization_fraction or 0.0)
    return tuple(_use(uuid, reported.get(uuid, {}), busy.get(uuid, [])) for uuid in {**reported, **busy})


def _reported(record: Record) -> Iterator[tuple[str, str, float]]:
    for rank in record.ranks:
        uuids = rank.header.all_uuids
        for metric in rank.metrics:
            if (found := _LAYERS.fullmatch(metric.name)) and int(found[1]) < len(uuids):
                yield uuids[int(found[1])], "num_layers", metric.value
            elif len(uuids) == 1:
                yield uuids[0], metric.name, metric.value


def _use(uuid: str, reported: dict[str, list[float]], busy: Sequence[float]) -> GpuUse:
    memory = {name: max(reported[name]) if name in reported else None for name in _MEMORY}
    layers = int(max(reported["num_layers"])) if "num_layers" in reported else None
    return GpuUse(uuid=uuid, utilization_fraction=fmean(busy) if busy else None, num_layers=layers, **memory)
