"""What somebody promises of points, beside what was found, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybench.core.numbers import interval, limits, percent, quantity_with_interval
from pybench.core.verdict import ONE_ATTEMPT
from pybench.model.results import ClaimResult, Estimate, Results, order_words
from pybench.model.text import plural
from pybench.model.workloads.registry import METRICS

CLAIMS_TITLE = "Claims, which judge nothing"
CLAIM_HEADS = ("point", "metric", "claimed", "found", "state", "reason", "source")
_PERCENT = 100.0
_CROSSED = "the interval holds the claim's limit; more attempts narrow it"


def claim_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Cells of every claim; the reason is why it is open."""
    benchmarks = {point.id: point.benchmark for point in results.points}
    for claim in results.claims:
        yield (
            names.get(claim.point_id, claim.point_id),
            claim.metric,
            _claimed(claim, names, benchmarks),
            _found(claim),
            claim.state,
            _open(claim) if claim.state == "open" else "",
            claim.source,
        )


def _open(claim: ClaimResult) -> str:
    """Why the claim is open, and about how many attempts would decide it."""
    why = ONE_ATTEMPT if claim.found.low is None else _CROSSED
    needed = claim.attempts_to_decide
    return why if needed is None else f"{why}; about {plural(needed, 'attempt')} would decide it"


def _claimed(claim: ClaimResult, names: Mapping[str, str], benchmarks: Mapping[str, str]) -> str:
    """In the words of comparisons where the other side is a point of another benchmark."""
    minimum, maximum, other = claim.minimum, claim.maximum, claim.baseline_id
    if other is None:
        return limits(minimum, maximum, METRICS[claim.metric].unit)
    if claim.widening_along is not None:
        way = "rises" if maximum is None else "falls"
        return f"ratio to {benchmarks.get(other, other)} {way} along {claim.widening_along}"
    if claim.table is not None or (minimum is None) == (maximum is None):
        return limits(minimum, maximum)
    words = order_words("below", maximum) if maximum is not None else order_words("above", minimum or 0.0)
    return f"{words} {names.get(other, other)}"


def _found(claim: ClaimResult) -> str:
    if claim.baseline_id is None:
        return quantity_with_interval(claim.found)
    if claim.widening_along is not None:
        return _move(claim.found)
    return f"{claim.found.value:.3f}x {interval(claim.found.low, claim.found.high)}".rstrip()


def _move(change: Estimate) -> str:
    """The way that a ratio goes, by the last one over the first: ``rises 28.4 % [20.1, 36.7]``."""
    way = 1 if change.value >= 1 else -1
    words = f"{'rises' if way > 0 else 'falls'} {percent(abs(change.value - 1))}"
    if change.low is None or change.high is None:
        return words
    ends = sorted(_PERCENT * way * (end - 1) for end in (change.low, change.high))
    return f"{words} {interval(*ends)}"
