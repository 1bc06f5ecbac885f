"""One step over all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pybench.model.record import Record
from pybench.model.wire import Step, Work


@dataclass(frozen=True)
class JointStep:
    """One step as every rank reported it, rank 0 first; ``device_name`` is rank 0's.

    ``firsts`` are the places in ``ranks`` of each replica's first rank: of 0 alone where all ranks hold one model.
    """

    ranks: tuple[Step, ...]
    device_name: str = ""
    firsts: tuple[int, ...] = (0,)

    @property
    def first(self) -> Step:
        """Rank 0's report."""
        return self.ranks[0]

    @property
    def replicas(self) -> tuple[Step, ...]:
        """The report of each replica's first rank."""
        return tuple([self.ranks[place] for place in self.firsts])

    @property
    def work(self) -> Work:
        """What all replicas got done together."""
        return total_work([step.work for step in self.replicas])

    @property
    def length_s(self) -> float:
        """Earliest start to latest end, in s."""
        return (max([step.end_ns for step in self.ranks]) - min([step.start_ns for step in self.ranks])) / 1e9


def joint_steps(record: Record) -> tuple[JointStep, ...]:
    """The measured steps of a record, each with all its ranks."""
    firsts: dict[int, int] = {}
    for place, rank in enumerate(record.ranks):
        firsts.setdefault(rank.header.replica, place)
    device = record.ranks[0].header.device_name if record.ranks else ""
    together = zip(*(rank.steps for rank in record.ranks), strict=True)
    return tuple(JointStep(ranks, device, tuple(firsts.values())) for ranks in together)


def total_work(works: Sequence[Work]) -> Work:
    """Sum of what was done."""
    if len(works) == 1:
        return works[0]
    return Work(
        prompt_tokens=sum(work.prompt_tokens for work in works),
        output_tokens=sum(work.output_tokens for work in works),
        samples=sum(work.samples for work in works),
    )
