"""The parts of a step, and those of what it takes too long."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.compute.comm_model.figures import NodeFigures


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
class Baseline:
    """A step as predicted and as measured: the calibration of every other step.

    Launches stay as they are on more GPUs, so what it takes beyond the model is added once; kernels beside the products
    share the work as these do (``beyond_shrinks``), and it grows and shrinks with them. A baseline that is faster than
    predicted shrinks every prediction by the same factor.
    """

    predicted: StepTime
    measured_s: float
    beyond_shrinks: bool = False

    @property
    def pace(self) -> float:
        """Measured over predicted where it is faster than the model, else 1."""
        return min(1.0, self.measured_s / self.predicted.total_s)

    def beyond_s(self, step: StepTime) -> float:
        """What ``step`` takes beyond the model."""
        own_s = max(0.0, self.measured_s - self.predicted.total_s)
        return own_s * _work_s(step) / _work_s(self.predicted) if self.beyond_shrinks else own_s

    def calibrated_s(self, step: StepTime) -> float:
        """Predicted seconds of ``step``, after what the baseline showed."""
        return self.pace * step.total_s + self.beyond_s(step)


def roofline(figures: NodeFigures, flops: float, num_bytes: float) -> StepTime:
    """The longer of computing and moving bytes (Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009)."""
    compute_s, memory_s = flops / figures.matmul_flops_per_s, num_bytes / figures.memory_bytes_per_s
    return StepTime(compute_s=compute_s) if compute_s >= memory_s else StepTime(memory_s=memory_s)


def attribute(measured_s: float, baseline: Baseline, *, predicted: StepTime, even: StepTime, share: float) -> Shortfall:
    """Parts of ``measured_s`` less ``share`` (the GPUs' ideal: 1/N of the same work) of the baseline's time.

    ``even`` is the step as ``predicted`` for GPUs that are all like the baseline's.
    """
    predicted_s = baseline.calibrated_s(predicted)
    ideal = baseline.predicted.times(share)
    return Shortfall(
        compute_s=baseline.pace * (even.compute_s - ideal.compute_s),
        memory_s=baseline.pace * (even.memory_s - ideal.memory_s),
        communication_s=baseline.pace * (even.communication_s - ideal.communication_s),
        imbalance_s=predicted_s - baseline.calibrated_s(even),
        software_s=baseline.beyond_s(even) - share * baseline.beyond_s(baseline.predicted),
        unexplained_s=measured_s - predicted_s,
    )


def _work_s(step: StepTime) -> float:
    return step.compute_s + step.memory_s
