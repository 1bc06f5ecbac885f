"""One step over all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pybench.model.record import Record
from pybench.model.wire import Step, Work


@dataclass(frozen=True)
class JointStep:
    """One step as every rank reported it, rank 0 first; ``device_name`` is rank 0's.

    ``replicas`` holds each rank's copy of the model, if there are several.
    """

    ranks: tuple[Step, ...]
    device_name: str = ""
    replicas: tuple[int, ...] = ()

    @property
    def first(self) -> Step:
        """Rank 0's report."""
        return self.ranks[0]

    @cached_property
    def copies(self) -> tuple[Step, ...]:
        """The report of each copy's first rank."""
        found: dict[int, Step] = {}
        for replica, step in zip(self.replicas or (0,) * len(self.ranks), self.ranks, strict=True):
            found.setdefault(replica, step)
        return tuple(found.values())

    @cached_property
    def work(self) -> Work:
        """What all copies got done together."""
        return total_work(step.work for step in self.copies)

    @property
    def start_ns(self) -> int:
        """When the earliest rank began."""
        return min(step.start_ns for step in self.ranks)

    @property
    def end_ns(self) -> int:
        """When the latest rank ended."""
        return max(step.end_ns for step in self.ranks)

    @property
    def length_s(self) -> float:
        """Earliest start to latest end, in s."""
        return (self.end_ns - self.start_ns) / 1e9


def joint_steps(record: Record) -> tuple[JointStep, ...]:
    """The measured steps of a record, each with all its ranks."""
    replicas = tuple(rank.header.replica for rank in record.ranks)
    device = record.ranks[0].header.device_name if record.ranks else ""
    together = zip(*(rank.steps for rank in record.ranks), strict=True)
    return tuple(JointStep(ranks, device, replicas) for ranks in together)


def total_work(works: Iterable[Work]) -> Work:
    """Sum of what was done."""
    known = tuple(works)
    return Work(
        prompt_tokens=sum(work.prompt_tokens for work in known),
        output_tokens=sum(work.output_tokens for work in known),
        samples=sum(work.samples for work in known),
    )
