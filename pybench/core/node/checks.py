"""Every check of the node, over a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pybench.core.measurements import Measurements
from pybench.core.node.driver import memory_errors, pcie, throttling, xids
from pybench.core.node.links import slow_links
from pybench.core.node.ranks import PointRecords
from pybench.core.node.sensors import sensors
from pybench.core.node.spread import slowest
from pybench.model.machine import Machine
from pybench.model.results import NodeCheck
from pybench.model.verdict import Verdict
from pybench.model.workloads.node import NodeSettings


@dataclass(frozen=True)
class _Results:
    """All checksums of a rank, in the order of its steps, and the elements that differed from its first result."""

    rank: int
    sums: tuple[float, ...]
    elements: float

    @property
    def repeat(self) -> bool:
        """Whether the rank agrees with itself."""
        return len(set(self.sums)) == 1 and not self.elements


def checksums(point: PointRecords) -> Iterator[NodeCheck]:
    """Every GPU whose results differ from its own first ones, or from what most GPUs of its name found.

    Ranks multiply the same operands with the same library, so their results may be compared. GPUs that each repeat
    what they found, and of which no majority agrees, are named together: one of them is wrong, and nobody knows which.
    """
    results = {rank: _results(point, rank, attempts) for rank, attempts in point.values("checksum").items()}
    if not results:
        return
    found = [
        check for alike in point.by_device(results) for check in _compare(point, [results[rank] for rank in alike])
    ]
    num_steps = len(next(iter(results.values())).sums)
    whole = f"results repeat bit for bit, in {num_steps} steps of each"
    yield from found or [_check(point, "all ranks", 0, "pass", whole)]


def _results(point: PointRecords, rank: int, attempts: list[list[float]]) -> _Results:
    differing = point.values("mismatched_elements").get(rank, [])
    sums = tuple(value for steps in attempts for value in steps)
    return _Results(rank, sums, sum(value for steps in differing for value in steps))


def _compare(point: PointRecords, alike: Sequence[_Results]) -> Iterator[NodeCheck]:
    steady = [one for one in alike if one.repeat]
    votes = Counter(one.sums[0] for one in steady).most_common()
    tied = len(votes) > 1 and votes[0][1] == votes[1][1]
    if tied:
        names = ", ".join(point.name(one.rank) for one in steady)
        reason = "each repeats its own results, but they differ, and no majority shows which are wrong: test each alone"
        yield _check(point, names, sum(len(one.sums) for one in steady), "fail", reason)
    for one in alike:
        usual = one.sums[0] if tied or not votes else votes[0][0]
        wrong = sum(value != usual for value in one.sums)
        if wrong or one.elements:
            yield _check(point, point.name(one.rank), wrong, "fail", _wrong_text(one, wrong))


def _wrong_text(one: _Results, wrong: int) -> str:
    return (
        f"{wrong} of {len(one.sums)} checksums differ from the usual one, "
        f"{one.elements:,.0f} elements from the same product's first result"
    )


def _check(point: PointRecords, subject: str, wrong: int, verdict: Verdict, reason: str) -> NodeCheck:
    return NodeCheck(
        name="checksum",
        subject=subject,
        point_id=point.point.id,
        value=float(wrong),
        limit=0.0,
        unit="steps",
        verdict=verdict,
        reason=reason,
    )


_OF_POINTS = (slowest, sensors, slow_links, checksums)
_OF_RUNS = (throttling, pcie, memory_errors, xids)


def node_checks(measurements: Measurements, machine: Machine) -> tuple[NodeCheck, ...]:
    """Checks of each point, then of the whole run. Empty for a suite that does not measure the node itself.

    What the driver reported counts in failed attempts, too: an XID is why many a worker fails.
    """
    planned = [point for point in measurements.plan.points if isinstance(point.settings, NodeSettings)]
    measured = [PointRecords(point, good, machine) for point in planned if (good := measurements.good(point.id))]
    found = [check for point in measured for kind in _OF_POINTS for check in kind(point)]
    if planned and measurements.records and machine.gpus:
        found += [check for kind in _OF_RUNS for check in kind(measurements.records, machine)]
    return tuple(found)
