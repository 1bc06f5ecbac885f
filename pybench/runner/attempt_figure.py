"""The figure that a progress line shows of an attempt: the one that the final table is made from."""

from __future__ import annotations

from statistics import median

from pybench.judge.formulas.registry import metric_values
from pybench.model.record import Record
from pybench.model.results import Estimate
from pybench.model.suite import Point
from pybench.model.workloads.registry import METRICS
from pybench.report.headline import headline_of


def attempt_figure(point: Point, record: Record) -> Estimate | None:
    """The median step of the attempt's headline metric; ``None`` for a failed attempt."""
    if not record.ok:
        return None
    values = metric_values(point, record)
    name = headline_of(values)
    if name is None:
        return None
    return Estimate(value=median(values[name]), low=None, high=None, unit=METRICS[name].unit)
