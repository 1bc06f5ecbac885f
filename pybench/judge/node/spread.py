"""The slowest GPU against the others: they are of one kind and do the same work at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.judge.node.ranks import PointRecords, against_others
from pybench.model.results import NodeCheck
from pybench.model.workloads.registry import SLOWER_FRACTIONS

# A CPU rank shares its core with the rest of the machine.
_SLOWER_FRACTION_ON_CPU = 0.50


def slowest(point: PointRecords) -> Iterator[NodeCheck]:
    """Every GPU that is slower than the others' median by more than is usual; else the slowest, which passes."""
    for metric, usual in SLOWER_FRACTIONS.items():
        told = point.values(metric)
        if len(told) < 2:  # noqa: PLR2004 - nobody to be compared with
            continue
        tolerance = usual if point.on_gpu else _SLOWER_FRACTION_ON_CPU
        judged = {
            rank: against_others(own, [told[other] for other in told if other != rank], tolerance)
            for rank, own in told.items()
        }
        failing = [rank for rank in judged if judged[rank].verdict == "fail"]
        for rank in failing or [min(judged, key=lambda rank: judged[rank].fraction)]:
            yield NodeCheck(
                name="slowest",
                subject=point.name(rank),
                point_id=point.point.id,
                value=judged[rank].fraction,
                limit=-tolerance,
                unit="fraction",
                verdict=judged[rank].verdict,
                reason=f"{metric}: {judged[rank]} against the others, allowed {-tolerance:+.0%}",
            )
