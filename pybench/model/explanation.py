"""Measured beside predicted: what a node's own figures predict of a run."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.suite import AxisValue


@dataclass(frozen=True, kw_only=True)
class ExplainedPoint:
    """One point against the baseline of its group. Times are seconds of a step.

    ``parts`` are what the step takes longer than its share of the baseline's: their sum is the shortfall. Where no
    prediction can be made, ``reason`` is why, and what is predicted is ``None``. ``power_limited`` names the GPUs
    whose clock their power limit held down, ``baseline_power_limited`` those of the baseline; ``None``: not
    known. ``clock_fraction`` is the SM clock of the GPU with the lowest, over that of the baseline, less one.
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
    latency_s: float
    bytes_per_s: float | None
    misfit_fraction: float


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A run beside the predictions from a node's run; ``notes`` are cautions about the two."""

    run_id: str
    node_run_id: str
    points: tuple[ExplainedPoint, ...]
    extrapolations: tuple[Extrapolation, ...]
    fits: tuple[CollectiveFit, ...]
    notes: tuple[str, ...]
