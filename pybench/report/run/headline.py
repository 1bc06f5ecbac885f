"""The one figure of a point that a narrow table shows, and its energy for each token or sample."""

from __future__ import annotations

from collections.abc import Container

from pybench.model.results import Estimate, PointResult, Results
from pybench.model.workloads.registry import HEADLINES

_ENERGIES = ("energy_j_per_output_token", "energy_j_per_token", "energy_j_per_sample")


def headline_of(names: Container[str]) -> str | None:
    """The headline metric among ``names``, the first that its registry lists; ``None`` where there is none."""
    return next((name for name in HEADLINES if name in names), None)


def headline_name(point: PointResult) -> str | None:
    """Name of the metric; ``None`` where nothing was measured."""
    return headline_of(point.metrics)


def headline(point: PointResult) -> Estimate | None:
    """The point's headline figure."""
    name = headline_name(point)
    return None if name is None else point.metrics[name]


def energy_name(point: PointResult) -> str | None:
    """Name of the metric of joules for each token or sample; ``None`` where energy is unknown or means little."""
    return next((name for name in _ENERGIES if name in point.metrics), None)


def energy(point: PointResult) -> Estimate | None:
    """Joules for each token or sample."""
    name = energy_name(point)
    return None if name is None else point.metrics[name]


def tracked(results: Results, point: PointResult) -> dict[str, Estimate]:
    """Metrics of a point for a tracker: its headline, joules for each token or sample, and judged metrics."""
    judged = [(row.benchmark, row.metric) for row in results.scaling]
    judged += [(row.benchmark, row.metric) for row in results.checks]
    judged += [(row.benchmark, row.metric) for row in results.comparisons]
    names = {metric for benchmark, metric in judged if benchmark == point.benchmark}
    names |= {*filter(None, (headline_name(point), energy_name(point)))}
    return {name: estimate for name, estimate in point.metrics.items() if name in names}


def requests_differ(point: PointResult) -> bool:
    """Whether requests of the point end at different times, so that percentiles describe them."""
    low, high = point.metrics.get("e2e_p50_s"), point.metrics.get("e2e_p99_s")
    return low is not None and high is not None and low.value != high.value
