"""Measured beside predicted: what a node's own figures predict of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pybench.model.suite import AxisValue
from pybench.model.workloads.turn import WORKING


@dataclass(frozen=True, kw_only=True)
class ExplainedBaseline:
    """The point of a group on the fewest GPUs, by itself: what speedups start from. Times are seconds of a step.

    ``parts`` are what its work needs at the node's own rates: compute, memory, communication. Where no prediction can
    be made they are ``None``, and ``reason`` is why. ``bound`` is a sentence where the CPU bounds it.
    """

    point_id: str
    num_gpus: int
    measured_s: float
    parts: dict[str, float] | None = None
    reason: str | None = None
    bound: str | None = None

    @property
    def beyond_s(self) -> float | None:
        """What it takes beyond its parts; negative where it is faster."""
        return None if self.parts is None else self.measured_s - sum(self.parts.values())


@dataclass(frozen=True, kw_only=True)
class ExplainedPoint:
    """One point against the baseline of its group. Times are seconds of a step.

    ``parts`` are what the step takes longer than its share of the baseline's: their sum is the shortfall. Where no
    prediction can be made, ``reason`` is why, and what is predicted is ``None``. ``power_limited`` names the GPUs
    whose clock their power limit held down, ``baseline_power_limited`` those of the baseline; ``None``: not
    known. ``clock_fraction`` is the SM clock of the GPU with the lowest, over that of the baseline, less one.
    ``power_w`` is what a GPU draws on average, ``baseline_power_w`` one of the baseline. ``wait`` is a sentence where
    the GPUs wait.
    """

    point_id: str
    baseline_id: str
    num_gpus: int
    measured_s: float
    measured_speedup: float
    predicted_s: float | None = None
    predicted_speedup: float | None = None
    shortfall_s: float | None = None
    parts: dict[str, float] | None = None
    reason: str | None = None
    power_limited: tuple[str, ...] | None = None
    baseline_power_limited: tuple[str, ...] | None = None
    clock_fraction: float | None = None
    power_w: float | None = None
    baseline_power_w: float | None = None
    wait: str | None = None

    @property
    def power_fraction(self) -> float | None:
        """Of a GPU over one of the baseline, less one."""
        return self.power_w / self.baseline_power_w - 1 if self.power_w and self.baseline_power_w else None


@dataclass(frozen=True, kw_only=True)
class Extrapolation:
    """A predicted speedup over one GPU at a count that was not measured, and the interval that the laws span."""

    benchmark: str
    group: dict[str, AxisValue]
    num_gpus: int
    speedup: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CollectiveFit:
    """What a prediction takes for a collective's size curve; ``misfit_fraction`` is its error at the worst size."""

    operation: str
    num_gpus: int
    num_nodes: int
    latency_s: float
    bytes_per_s: float | None
    misfit_fraction: float


@dataclass(frozen=True, kw_only=True)
class ExplainedPhase:
    """A phase of a turn, in seconds.

    ``alone_s`` is the same work as a workload of its own, measured by the point ``alone_id`` of the same run; only
    generating and training are that. ``floor_s`` is what the phase takes at least at the node's own rates, 0 where
    nothing has to be moved; where it is ``None``, ``reason`` is why.
    """

    name: str
    measured_s: float
    alone_s: float | None = None
    alone_id: str | None = None
    floor_s: float | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExplainedTurn:
    """One turn as its phases. Generating and training come first; the rest is the switch."""

    point_id: str
    turn_s: float
    switch_s: float
    phases: tuple[ExplainedPhase, ...]

    @property
    def working(self) -> tuple[ExplainedPhase, ...]:
        """Generating and training."""
        return tuple(phase for phase in self.phases if phase.name in WORKING)

    @property
    def switching(self) -> tuple[ExplainedPhase, ...]:
        """The other phases."""
        return tuple(phase for phase in self.phases if phase.name not in WORKING)

    @property
    def alone_s(self) -> float | None:
        """Generating and training as workloads of their own; ``None`` where one was not measured."""
        return _sum(phase.alone_s for phase in self.working)

    @property
    def switch_floor_s(self) -> float | None:
        """Of all phases of the switch together; ``None`` where one has no floor."""
        return _sum(phase.floor_s for phase in self.switching)


def _sum(values: Iterable[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A run beside the predictions from a node's run; ``notes`` are cautions about the two."""

    run_id: str
    node_run_id: str
    points: tuple[ExplainedPoint, ...]
    extrapolations: tuple[Extrapolation, ...]
    fits: tuple[CollectiveFit, ...]
    notes: tuple[str, ...]
    turns: tuple[ExplainedTurn, ...] = ()
    baselines: tuple[ExplainedBaseline, ...] = ()
