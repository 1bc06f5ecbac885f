"""The parts of a step, and those of what it takes too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pybench.explain.comm_model.figures import NodeFigures


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Predicted seconds of a step: computing, waiting for memory, and communication that nothing hides."""

    compute_s: float = 0.0
    memory_s: float = 0.0
    communication_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.compute_s + self.memory_s + self.communication_s

    def __add__(self, other: StepTime) -> StepTime:
        return StepTime(
            compute_s=self.compute_s + other.compute_s,
            memory_s=self.memory_s + other.memory_s,
            communication_s=self.communication_s + other.communication_s,
        )

    def times(self, factor: float) -> StepTime:
        """The time of ``factor`` such steps."""
        return StepTime(
            compute_s=self.compute_s * factor,
            memory_s=self.memory_s * factor,
            communication_s=self.communication_s * factor,
        )


def whole(phases: Sequence[StepTime]) -> StepTime:
    """A step of these phases."""
    return sum(phases, StepTime())


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """Why a step takes longer than the baseline's over the GPU ratio; the parts add up to that difference.

    ``imbalance_s``: what its slowest GPU costs beside GPUs like the baseline's. ``software_s``: what the baseline takes
    beyond the model (launches, kernels below the microbenchmarks), as far as it does not shrink with more GPUs.
    ``unexplained_s`` is measured less predicted, and may be negative.
    """

    compute_s: float
    memory_s: float
    communication_s: float
    imbalance_s: float
    software_s: float
    unexplained_s: float


@dataclass(frozen=True, kw_only=True)
class BaselinePhase:
    """A phase as predicted and as measured: the calibration of the same phase on other GPUs.

    Launches stay as they are on more GPUs, so what it takes beyond the model is added once; kernels beside the products
    share the work as these do (``beyond_shrinks``), and it grows and shrinks with them. A phase that is faster than
    predicted shrinks every prediction by the same factor.
    """

    predicted: StepTime
    measured_s: float
    beyond_shrinks: bool = False

    @property
    def pace(self) -> float:
        """Measured over predicted where it is faster than the model, else 1."""
        return min(1.0, self.measured_s / self.predicted.total_s) if self.predicted.total_s else 1.0

    def beyond_s(self, phase: StepTime) -> float:
        """What ``phase`` takes beyond the model."""
        own_s = max(0.0, self.measured_s - self.predicted.total_s)
        return own_s * _work_s(phase) / _work_s(self.predicted) if self.beyond_shrinks else own_s


@dataclass(frozen=True)
class Baseline:
    """A step as predicted and as measured, phase by phase. With one phase alone the step is calibrated as a whole."""

    phases: tuple[BaselinePhase, ...]

    def calibrated_s(self, step: Sequence[StepTime]) -> float:
        """Seconds of a step of these predicted phases, after what the baseline showed."""
        return sum(own.pace * phase.total_s + own.beyond_s(phase) for own, phase in self.paired(step))

    def paired(self, step: Sequence[StepTime]) -> list[tuple[BaselinePhase, StepTime]]:
        """Each of the baseline's phases with that of ``step``."""
        phases = [whole(step)] if len(self.phases) == 1 else step
        return list(zip(self.phases, phases, strict=True))


def roofline(figures: NodeFigures, flops: float, num_bytes: float) -> StepTime:
    """The longer of computing and moving bytes (Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009)."""
    compute_s, memory_s = flops / figures.matmul_flops_per_s, num_bytes / figures.memory_bytes_per_s
    return StepTime(compute_s=compute_s) if compute_s >= memory_s else StepTime(memory_s=memory_s)


def attribute(
    measured_s: float, baseline: Baseline, *, predicted: Sequence[StepTime], even: Sequence[StepTime], share: float
) -> Shortfall:
    """Parts of ``measured_s`` less ``share`` (the GPUs' ideal: 1/N of the same work) of the baseline's time.

    ``even`` are the phases as ``predicted`` for GPUs that are all like the baseline's.
    """
    predicted_s = baseline.calibrated_s(predicted)
    parts = [_lost(own, phase, share) for own, phase in baseline.paired(even)]
    return Shortfall(
        compute_s=sum(part.compute_s for part, _ in parts),
        memory_s=sum(part.memory_s for part, _ in parts),
        communication_s=sum(part.communication_s for part, _ in parts),
        imbalance_s=predicted_s - baseline.calibrated_s(even),
        software_s=sum(software_s for _, software_s in parts),
        unexplained_s=measured_s - predicted_s,
    )


def _lost(own: BaselinePhase, phase: StepTime, share: float) -> tuple[StepTime, float]:
    """Parts of a phase that are beyond ``share`` of the baseline's, and what lies beyond the model of it."""
    beyond_s = own.beyond_s(phase) - share * own.beyond_s(own.predicted)
    return (phase + own.predicted.times(-share)).times(own.pace), beyond_s


def _work_s(step: StepTime) -> float:
    return step.compute_s + step.memory_s
