"""The slowest GPU of a kind against the others, which do the same work at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.core.node.ranks import ALONE, PointRecords, judge_alike, shares_of_others, shown
from pybench.core.numbers import short_percent
from pybench.model.results import NodeCheck
from pybench.model.workloads.registry import SLOWER_FRACTIONS

SLOWEST = "slowest"
"""The check's name, also of a GPU that is only undecided."""

# A CPU rank shares its core with the rest of the machine.
_SLOWER_FRACTION_ON_CPU = 0.50


def slowest(point: PointRecords) -> Iterator[NodeCheck]:
    """Every GPU that is, or may be, slower than the median of the others of its kind by more than is usual.

    Where all of a kind pass, the slowest. One that is alone of its kind among others neither passes nor fails.
    """
    for metric, usual in SLOWER_FRACTIONS.items():
        ranks = point.values(metric)
        if len(ranks) < 2:  # noqa: PLR2004 - nobody to be compared with
            continue
        tolerance = usual if point.on_gpu else _SLOWER_FRACTION_ON_CPU
        for alike in point.by_device(ranks):
            if len(alike) == 1:
                yield _alone(point, alike[0], metric, tolerance)
            else:
                yield from _compare(point, metric, tolerance, {rank: ranks[rank] for rank in alike})


def _compare(
    point: PointRecords, metric: str, tolerance: float, ranks: dict[int, list[list[float]]]
) -> Iterator[NodeCheck]:
    shares = {
        rank: shares_of_others(own, [ranks[other] for other in ranks if other != rank]) for rank, own in ranks.items()
    }
    judged = judge_alike(point.point, shares, tolerance)
    for rank in shown(judged):
        found = judged[rank]
        reason = f"{metric}: {found} against the others, allowed -{short_percent(tolerance)}{found.what_next}"
        yield found.check(SLOWEST, point.name(rank), point.point, tolerance, reason)


def _alone(point: PointRecords, rank: int, metric: str, tolerance: float) -> NodeCheck:
    return NodeCheck(
        name=SLOWEST,
        subject=point.name(rank),
        point_id=point.point.id,
        value=None,
        limit=-tolerance,
        unit="fraction",
        verdict="no_expectation",
        reason=f"{metric}: {ALONE}",
    )
