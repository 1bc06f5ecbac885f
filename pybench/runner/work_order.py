"""What a worker is ordered to do for a point, by the plan and what was recorded before."""

from __future__ import annotations

from collections.abc import Iterable

from pybench.compute.auto_batch import settings_of_next
from pybench.model.record import Record
from pybench.model.suite import DeviceKind, Point
from pybench.model.wire import WorkOrder


def work_order(point: Point, device: DeviceKind, records: Iterable[Record]) -> WorkOrder:
    """The order for the next attempt at ``point``, after ``records``."""
    return WorkOrder(
        point_id=point.id,
        settings=settings_of_next(point, records),
        architecture=point.architecture,
        device=device,
        steps=point.effort.steps,
        max_warmup_steps=point.effort.max_warmup_steps,
        dither_ms=point.effort.dither_ms,
    )
