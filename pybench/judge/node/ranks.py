"""What each rank of a point said, and which GPU it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pybench.compute.stats import Samples, estimate
from pybench.judge.verdict import against
from pybench.model.machine import Machine
from pybench.model.record import Record
from pybench.model.results import Verdict
from pybench.model.suite import Point


@dataclass(frozen=True)
class Judged:
    """A throughput relative to the others' median, less one; with its 95 % interval, and the verdict on it."""

    fraction: float
    low: float | None
    high: float | None
    verdict: Verdict

    def __str__(self) -> str:
        """In percent, with the interval where there is one."""
        if self.low is None or self.high is None:
            return f"{self.fraction:+.1%} (one attempt shows no spread between runs)"
        return f"{self.fraction:+.1%} [{self.low:+.1%}, {self.high:+.1%}]"


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

    def values(self, name: str) -> dict[int, list[list[float]]]:
        """A value told in every step, of the ranks that told it: by rank, then attempt, then step."""
        return {
            rank: [[step.values[name] for step in record.ranks[rank].steps] for record in self.records]
            for rank in range(self.point.num_gpus)
            if all(name in step.values for record in self.records for step in record.ranks[rank].steps)
        }


def gpu_name(uuid: str, machine: Machine) -> str:
    """``GPU 3 (GPU-…)``; the UUID alone for a GPU that the machine did not list."""
    index = next((gpu.index for gpu in machine.gpus if gpu.uuid == uuid), None)
    return uuid if index is None else f"GPU {index} ({uuid})"


def against_others(own: Samples, others: Sequence[Samples], tolerance: float) -> Judged:
    """Judge a throughput step by step against the median of the others, of which it may be ``tolerance`` below."""
    fractions = [
        [value / median(other[attempt][step] for other in others) - 1 for step, value in enumerate(steps)]
        for attempt, steps in enumerate(own)
    ]
    value, low, high = estimate(fractions)
    if low is None or high is None:
        return Judged(value, low, high, "inconclusive")
    return Judged(value, low, high, against(-tolerance, low, high, at_least=True))
