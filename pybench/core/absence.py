"""Why a point has no measurement of a metric."""

from __future__ import annotations

from pybench.core.measurements import Measurements
from pybench.model.suite import Point, Skip
from pybench.model.verdict import Verdict
from pybench.model.workloads.registry import METRICS


def absence(entry: Point | Skip, metric: str, measurements: Measurements, of: str = "") -> tuple[Verdict, str] | None:
    """Verdict and reason, which ``of`` begins; ``None`` when the point has the metric."""
    if isinstance(entry, Skip):
        # What the user left out is not missing.
        return ("missing" if entry in measurements.plan.skips else "no_expectation"), of + entry.reason
    if metric in measurements.samples(entry):
        return None
    own = measurements.attempts(entry.id)
    failure = next((record.failure for record in own if record.failure), None)
    if own and not any(record.ok for record in own) and failure is not None:
        return "error", f"{of}{failure.cause}: {failure.message}"
    # No other metric is absent for want of a power sensor.
    reasons = (record.energy_reason for record in own if record.energy_reason and METRICS[metric].is_of_energy)
    return "missing", of + (next(reasons, "the metric was not measured") if own else "not measured")
