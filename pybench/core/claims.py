"""Published claims next to measured figures: shown with their source, never part of a verdict."""

from __future__ import annotations

from pybench.core.verdict import RowStatistics
from pybench.model.expected import ExpectedRow
from pybench.model.results import ClaimResult, ClaimState, Estimate
from pybench.model.workloads.registry import METRICS


def claim_result(
    benchmark: str,
    row: ExpectedRow,
    table: str,
    point_id: str,
    baseline_id: str | None,
    found: Estimate,
    evidence: RowStatistics,
) -> ClaimResult:
    """One claim with its measured figure. Only the worse side counts: a figure better than the claim keeps it."""
    minimum, maximum = row.limits
    more = METRICS[row.metric].higher_is_better
    least, most = minimum if more else None, None if more else maximum
    state = claim_state(found, least, most)
    return ClaimResult(
        benchmark=benchmark,
        metric=row.metric,
        point_id=point_id,
        baseline_id=baseline_id,
        found=found,
        minimum=minimum,
        maximum=maximum,
        state=state,
        attempts_to_decide=evidence.decide(least, most).attempts_to_decide if state == "open" else None,
        source=row.source,
        table=table,
    )


def claim_state(found: Estimate, minimum: float | None, maximum: float | None) -> ClaimState:
    """*kept* if the whole interval is on the claimed side of the limits, *not kept* if all of it is beyond one."""
    if found.low is None or found.high is None:
        return "open"
    if (minimum is not None and found.high < minimum) or (maximum is not None and found.low > maximum):
        return "not kept"
    kept = (minimum is None or found.low >= minimum) and (maximum is None or found.high <= maximum)
    return "kept" if kept else "open"
