"""Measured and predicted: what a node's own rates predict of a run. Times are seconds of a step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ExplainedBaseline:
    """The point of a group on the fewest GPUs; speedups are taken against it.

    ``parts``: compute, memory and communication of its counted work at the node's own rates; ``None`` if there is no
    prediction, and ``reason`` has the cause. ``bound``: a sentence if the CPU bounds the step.
    """

    point_id: str
    num_gpus: int
    measured_s: float
    parts: dict[str, float] | None = None
    reason: str | None = None
    bound: str | None = None

    @property
    def beyond_s(self) -> float | None:
        """Measured time minus its parts; negative for a step that is faster."""
        return None if self.parts is None else self.measured_s - sum(self.parts.values())


@dataclass(frozen=True, kw_only=True)
class ExplainedPoint:
    """One point against the baseline of its group.

    ``parts`` add up to ``shortfall_s``, the step's time minus its share of the baseline's. Without a prediction
    ``reason`` has the cause, and predicted values are ``None``. ``power_limited`` and ``baseline_power_limited`` name
    the GPUs whose power limit lowered their clock, ``None`` if unknown. ``clock_fraction``: lowest SM clock over the
    baseline's, minus one. ``power_w``, ``baseline_power_w``: mean power of one GPU. ``wait``: for what GPUs wait.
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
        """Mean power of a GPU over that of the baseline, minus one."""
        return self.power_w / self.baseline_power_w - 1 if self.power_w and self.baseline_power_w else None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A run explained by a node's run; ``notes`` are cautions about the two."""

    run_id: str
    node_run_id: str
    points: tuple[ExplainedPoint, ...]
    notes: tuple[str, ...]
    baselines: tuple[ExplainedBaseline, ...] = ()
