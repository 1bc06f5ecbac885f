"""The slowest GPU against the others: they are of one kind and do the same work at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.judge.node.ranks import PointRecords, judge_alike, shares_of_others, shown
from pybench.model.results import NodeCheck
from pybench.model.workloads.registry import SLOWER_FRACTIONS

SLOWEST = "slowest"
"""The check's name, also of a GPU that is only undecided."""

# A CPU rank shares its core with the rest of the machine.
_SLOWER_FRACTION_ON_CPU = 0.50


def slowest(point: PointRecords) -> Iterator[NodeCheck]:
    """Every GPU that is, or may be, slower than the others' median by more than is usual; else the slowest."""
    for metric, usual in SLOWER_FRACTIONS.items():
        ranks = point.values(metric)
        if len(ranks) < 2:  # noqa: PLR2004 - nobody to be compared with
            continue
        tolerance = usual if point.on_gpu else _SLOWER_FRACTION_ON_CPU
        shares = {
            rank: shares_of_others(own, [ranks[other] for other in ranks if other != rank])
            for rank, own in ranks.items()
        }
        judged = judge_alike(point.point, shares, tolerance)
        for rank in shown(judged):
            found = judged[rank]
            reason = f"{metric}: {found} against the others, allowed {-tolerance:+.0%}{found.what_next}"
            yield found.check(SLOWEST, point.name(rank), point.point, tolerance, reason)
