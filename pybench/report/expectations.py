"""Everything that a suite expects of single points, as one sequence."""

from __future__ import annotations

from pybench.model.results import CheckResult, OrderResult, Results, ScalingResult

Judged = ScalingResult | CheckResult | OrderResult


def expectations(results: Results) -> tuple[Judged, ...]:
    """Ratios to a baseline, limits, comparisons with other points."""
    return (*results.scaling, *results.checks, *results.orders)
