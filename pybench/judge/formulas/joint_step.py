"""One step over all ranks."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.record import Record
from pybench.model.wire import Step


@dataclass(frozen=True)
class JointStep:
    """One step as every rank told it, rank 0 first; ``device_name`` is rank 0's."""

    ranks: tuple[Step, ...]
    device_name: str = ""

    @property
    def first(self) -> Step:
        """Rank 0's account."""
        return self.ranks[0]

    @property
    def length_s(self) -> float:
        """Earliest start to latest end, in s."""
        return (max(step.end_ns for step in self.ranks) - min(step.start_ns for step in self.ranks)) / 1e9


def joint_steps(record: Record) -> tuple[JointStep, ...]:
    """The measured steps of a record, each with all its ranks."""
    name = record.ranks[0].header.device_name
    return tuple(JointStep(together, name) for together in zip(*(rank.steps for rank in record.ranks), strict=True))
