"""Reports of each rank of a point, its GPU, and how a rank or link is judged against the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from pybench.core.measurements import grouped
from pybench.core.numbers import bracketed, signed_percent
from pybench.core.statistics.contrast import contrast
from pybench.core.statistics.interval import Samples, estimate, logs
from pybench.core.statistics.spread import Spread, pooled, variance_of
from pybench.core.verdict import RowStatistics, level_of, more_attempts_text, verdict_of
from pybench.model.machine import Machine
from pybench.model.record import Record
from pybench.model.results import NodeCheck
from pybench.model.suite import Point
from pybench.model.verdict import Decision, Verdict

_Key = TypeVar("_Key", bound=Hashable)

ALONE = "no other GPU of its kind was measured"
"""Why a GPU among those of other kinds is compared with none."""

_MAX_FREEDOM = 4
# A GPU that did nothing has no logarithm.
_NEAR_ZERO = 1e-6


@dataclass(frozen=True)
class Judged:
    """A throughput relative to the others' median, less one; with its 95 % interval, and the verdict on it."""

    fraction: float
    low: float | None
    high: float | None
    verdict: Verdict
    decision: Decision

    def __str__(self) -> str:
        """In percent, with the interval where there is one."""
        if self.low is None or self.high is None:
            return f"{signed_percent(self.fraction)} (one attempt shows no spread between runs)"
        ends = map(signed_percent, (self.low, self.high))
        return f"{signed_percent(self.fraction)} {bracketed(1 + self.fraction, 1 + self.low, 1 + self.high, ends)}"

    @property
    def what_next(self) -> str:
        """Attempts that an undecided throughput needs; empty for others."""
        undecided = self.verdict == "inconclusive" and self.low is not None
        return f"; {more_attempts_text(self.decision)}" if undecided else ""


def node_check(
    name: str,
    subject: str,
    verdict: Verdict,
    reason: str,
    *,
    point: PointRecords | None = None,
    value: float | None = None,
    limit: float | None = None,
    unit: str = "",
    decision: Decision | None = None,
) -> NodeCheck:
    """A check; one by the driver's report alone has neither point nor figure."""
    return NodeCheck(
        name=name,
        subject=subject,
        point_id=None if point is None else point.point.id,
        value=value,
        limit=limit,
        unit=unit,
        verdict=verdict,
        reason=reason,
        decision=decision,
    )


@dataclass(frozen=True)
class PointRecords:
    """One point's good attempts."""

    point: Point
    records: tuple[Record, ...]
    machine: Machine

    @property
    def on_gpu(self) -> bool:
        """Whether ranks ran on GPUs."""
        return all(rank.header.device == "cuda" for record in self.records for rank in record.ranks)

    def name(self, rank: int) -> str:
        """The GPU's index and UUID; on CPUs the rank."""
        uuid = self.uuid(rank)
        return f"rank {rank}" if uuid is None else gpu_name(uuid, self.machine)

    def uuid(self, rank: int) -> str | None:
        """UUID of a rank's GPU, the same in all attempts; ``None`` on CPUs."""
        return self.records[0].ranks[rank].header.device_uuid

    def by_device(self, ranks: Iterable[int]) -> list[list[int]]:
        """Ranks on devices of one name: another kind of device is faster or slower, and may round otherwise."""
        return list(grouped((self.device_name(rank), rank) for rank in ranks).values())

    def slower(self, name: str, subject: str, judged: Judged, tolerance: float, reason: str) -> NodeCheck:
        """The check that allows a throughput to be slower by ``tolerance``."""
        return node_check(
            name,
            subject,
            judged.verdict,
            reason,
            point=self,
            value=judged.fraction,
            limit=-tolerance,
            unit="fraction",
            decision=judged.decision,
        )

    def device_name(self, rank: int) -> str:
        """Of the kind of a rank's device, the same in all attempts."""
        return self.records[0].ranks[rank].header.device_name

    def values(self, name: str) -> dict[int, list[list[float]]]:
        """A value reported in every step, of the ranks that reported it: by rank, then attempt, then step."""
        return {
            rank: [[step.values[name] for step in record.ranks[rank].steps] for record in self.records]
            for rank in range(self.point.num_gpus)
            if all(name in step.values for record in self.records for step in record.ranks[rank].steps)
        }


def gpu_name(uuid: str, machine: Machine) -> str:
    """``GPU 3 (GPU-…)``; the UUID alone for a GPU that the machine did not list."""
    index = next((gpu.index for gpu in machine.gpus if gpu.uuid == uuid), None)
    return uuid if index is None else f"GPU {index} ({uuid})"


def shares_of_others(samples: Samples, others: Sequence[Samples]) -> Samples:
    """A throughput over the median of the others', step by step; 1 where it alone is above zero."""

    def share(value: float, attempt: int, step: int) -> float:
        usual = median(other[attempt][step] for other in others)
        if usual > 0:
            return max(value / usual, _NEAR_ZERO)
        return 1.0 if value > 0 else _NEAR_ZERO

    return [[share(value, attempt, step) for step, value in enumerate(steps)] for attempt, steps in enumerate(samples)]


def judge_alike(point: Point, shares: Mapping[_Key, Samples], tolerance: float) -> dict[_Key, Judged]:
    """Judge what GPUs or links of one kind reach of the others, of which each may be ``tolerance`` below.

    They do the same work at the same time, so that each one's spread is moderated by the others'. A fail of one among
    many must be that much surer.
    """
    values = {key: logs(samples) for key, samples in shares.items()}
    noise = {key: (variance_of(attempts), len(attempts) - 1) for key, attempts in values.items() if len(attempts) > 1}
    level, judged = level_of([point.effort]), dict[_Key, Judged]()
    for key, samples in shares.items():
        others, spread = [variance for other, variance in noise.items() if other != key], None
        if others:  # few degrees of freedom, since one GPU may be noisy
            variance, freedom = pooled(others)
            spread = Spread(variance=variance, freedom=min(_MAX_FREEDOM, freedom), num_points=len(others))
        value, low, high = estimate(samples)
        evidence = RowStatistics(
            interval=(value, low, high),
            contrast=contrast([values[key]], spread=spread),
            pass_level=level,
            fail_level=level / len(values),
            num_points=len(values),
        )
        decision = evidence.decide(1 - tolerance, None)
        verdict: Verdict = "inconclusive" if low is None else verdict_of(decision)
        ends = (None if low is None else low - 1, None if high is None else high - 1)
        judged[key] = Judged(value - 1, *ends, verdict, decision)
    return judged


def shown(judged: Mapping[_Key, Judged]) -> list[_Key]:
    """Keys that a report names: all failing and undecided ones; if all pass, the lowest."""
    open_or_failing = [key for key, share in judged.items() if share.verdict != "pass"]
    return open_or_failing or [min(judged, key=lambda key: judged[key].fraction)]
