"""A point's headline figure, its energy for each token or sample, and what its suite expects of it."""

from __future__ import annotations

from collections.abc import Container

from pybench.core.loss_curve import METRIC as LOSS_GUARD
from pybench.core.measurements import grouped
from pybench.core.numbers import ONE, percent, plain, quantity, with_spread
from pybench.model.results import CheckResult, Estimate, ExpectationRow, PointResult, Results, ScalingResult
from pybench.model.workloads.registry import HEADLINES

NONE = "-"
_WORST = ("fail", "error", "missing", "inconclusive", "pass")
_ENERGIES = ("energy_j_per_output_token", "energy_j_per_token", "energy_j_per_sample")
_BARE = frozenset({"batch_size_per_gpu", "loss"})
"""Metrics that every table shows without their unit."""


def headline_of(names: Container[str]) -> str | None:
    """The headline metric among ``names``, the first that its registry lists; ``None`` where there is none."""
    return next((name for name in HEADLINES if name in names), None)


def headline(point: PointResult) -> Estimate | None:
    """The point's headline figure; ``None`` where nothing was measured."""
    return point.metrics.get(headline_of(point.metrics) or "")


def energy_name(point: PointResult) -> str | None:
    """Name of the metric of joules for each token or sample; ``None`` where energy is unknown or means little."""
    return next((name for name in _ENERGIES if name in point.metrics), None)


def energy(point: PointResult) -> Estimate | None:
    """Joules for each token or sample."""
    return point.metrics.get(energy_name(point) or "")


def metric_text(point: PointResult, name: str) -> str:
    """A metric of a point without its interval, a fraction in per cent; a dash where it was not measured."""
    figure = point.metrics.get(name)
    if figure is None:
        return NONE
    if name.endswith("_fraction"):
        return percent(figure.value)
    return plain(figure.value) if name in _BARE else quantity(figure).strip()


def tracked(results: Results, point: PointResult) -> dict[str, Estimate]:
    """Metrics of a point for a tracker: its headline, joules for each token or sample, and judged metrics."""
    judged = {row.metric for row in results.expectations if row.benchmark == point.benchmark}
    names = {headline_of(point.metrics), energy_name(point), *judged}
    return {name: estimate for name, estimate in point.metrics.items() if name in names}


def requests_differ(point: PointResult) -> bool:
    """Whether requests of the point end at different times, so that percentiles describe them."""
    low, high = point.metrics.get("e2e_p50_s"), point.metrics.get("e2e_p99_s")
    return low is not None and high is not None and low.value != high.value


class Expectations:
    """The rows of results by point; ``baselines`` are the points that measured ratios are taken against."""

    def __init__(self, results: Results) -> None:
        self.baselines = {row.baseline_id for row in results.scaling if row.speedup is not None}
        self._rows = grouped((row.point_id, row) for row in results.expectations)

    def verdict(self, point: PointResult) -> str:
        """The worst verdict of everything expected of the point; its status where it was not measured, else a dash.

        A loss that agrees with another point's is no expectation, and no pass.
        """
        if point.status != "ok":
            return point.status
        verdicts = {row.verdict for row in self._rows.get(point.id, ()) if not is_passed_guard(row)}
        return next((verdict for verdict in _WORST if verdict in verdicts), NONE)

    def ratio(self, point: PointResult) -> ScalingResult | None:
        """The ratio of the headline figure, else the first."""
        rows = [row for row in self._rows.get(point.id, ()) if isinstance(row, ScalingResult)]
        return next((row for row in rows if row.metric == headline_of(point.metrics)), rows[0] if rows else None)

    def check(self, point: PointResult, metric: str | None) -> CheckResult | None:
        """The limits on one metric of the point."""
        rows = (row for row in self._rows.get(point.id, ()) if isinstance(row, CheckResult))
        return next((row for row in rows if row.metric == metric), None)


def speedup_text(value: float | None, low: float | None, high: float | None) -> str:
    """A ratio with its spread; a dash where it is unknown."""
    return NONE if value is None else with_spread(Estimate(value=value, low=low, high=high, unit=""), ONE)


def is_passed_guard(row: ExpectationRow) -> bool:
    """Whether the row shows that a training computes what another one does, which no suite asks for."""
    return row.metric == LOSS_GUARD and row.verdict == "pass"
