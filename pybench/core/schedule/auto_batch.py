"""The batch size that a worker found, for all later attempts at its point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pybench.model.record import Record
from pybench.model.suite import Point
from pybench.model.workloads.registry import AnySettings
from pybench.model.workloads.train import Train

METRIC = "batch_size_per_gpu"


def settings_of_next(point: Point, records: Iterable[Record]) -> AnySettings:
    """The point's settings, with an ``auto`` batch size as its first good attempt found it; else as they are."""
    settings = point.settings
    if not isinstance(settings, Train) or not settings.finds_batch_size:
        return settings
    found = next((size for record in records if (size := _found(point, record)) is not None), None)
    return settings if found is None else replace(settings, batch_size_per_gpu=found)


def _found(point: Point, record: Record) -> int | None:
    if record.point_id != point.id or not record.ok:
        return None
    sizes = [int(metric.value) for rank in record.ranks for metric in rank.metrics if metric.name == METRIC]
    return min(sizes, default=None)
