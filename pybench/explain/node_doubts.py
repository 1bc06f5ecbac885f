"""What puts a node's figures, and so every prediction from them, in doubt."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pybench.core.evidence import ONE_ATTEMPT
from pybench.core.numbers import quantity_with_interval, spread
from pybench.model.plural import abridged, plural
from pybench.model.results import Estimate, Results

_WIDE = 0.05
"""Half of an interval over the value: most predictions lie nearer to what was measured."""
_MOST_NAMED = 3


def node_doubts(results: Results, metrics: Collection[str]) -> Iterator[str]:
    """Its verdict, figures of ``metrics`` with wide intervals, and points measured once, which have none."""
    if results.verdict not in {"pass", "no_expectation"}:
        yield f"the node's run has the verdict {results.verdict}: {results.reason}"
    found = [(point, name) for point in results.points for name in point.metrics if name in metrics]
    wide = [
        f"{name} of {point.id} {quantity_with_interval(point.metrics[name])}"
        for point, name in found
        if _is_wide(point.metrics[name])
    ]
    if wide:
        yield f"figures of the node's run have wide intervals, and so have predictions: {abridged(wide, _MOST_NAMED)}"
    points = {point.id for point, _ in found}
    once = {point.id for point, name in found if point.metrics[name].low is None}
    if once and ONE_ATTEMPT not in results.reason:
        of_all = "its points" if once == points else f"{len(once)} of its {plural(len(points), 'point')}"
        yield f"the node's run measured {of_all} once: how far these figures scatter is not known"


def _is_wide(estimate: Estimate) -> bool:
    half = spread(estimate.value, estimate.low, estimate.high)
    return half is not None and half > _WIDE * abs(estimate.value)
