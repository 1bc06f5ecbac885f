"""Short names of points for people: what is the same throughout a benchmark is told once."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.compute.plan import point_id
from pybench.model.results import PointResult
from pybench.model.suite import AxisValue


def labels(points: Sequence[PointResult]) -> dict[str, str]:
    """Label of each point by its id: the benchmark and the axes that vary, e.g. ``decode[tensor_parallel=2]``."""
    return {point.id: point_id(point.benchmark, _without(point.axes, _common(points, point))) for point in points}


def common_axes(points: Sequence[PointResult]) -> tuple[str, ...]:
    """What :func:`labels` leaves out, once for each benchmark, e.g. ``decode[backend=torch]``."""
    named = (point_id(point.benchmark, common) for point in points if (common := _common(points, point)))
    return tuple(dict.fromkeys(named))


def _common(points: Sequence[PointResult], point: PointResult) -> dict[str, AxisValue]:
    siblings = [other.axes for other in points if other.benchmark == point.benchmark]
    return {name: value for name, value in point.axes.items() if all(axes.get(name) == value for axes in siblings)}


def _without(axes: dict[str, AxisValue], common: dict[str, AxisValue]) -> dict[str, AxisValue]:
    return {name: value for name, value in axes.items() if name not in common}
