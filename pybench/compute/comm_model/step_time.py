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
        """So many such steps."""
        return StepTime(
            compute_s=self.compute_s * factor,
            memory_s=self.memory_s * factor,
            communication_s=self.communication_s * factor,
        )


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """Why a step takes longer than the baseline's over the GPU ratio; the parts add up to that difference.

    ``software_s``: what one GPU takes beyond the model (launches, kernels below the microbenchmarks), as far as it does
    not shrink with more of them. ``unexplained_s`` is what remains, and may be negative.
    """

    compute_s: float
    memory_s: float
    communication_s: float
    imbalance_s: float
    software_s: float
    unexplained_s: float


def roofline(figures: NodeFigures, flops: float, num_bytes: float) -> StepTime:
    """The longer of computing and moving bytes (Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009)."""
    compute_s, memory_s = flops / figures.matmul_flops_per_s, num_bytes / figures.memory_bytes_per_s
    return StepTime(compute_s=compute_s) if compute_s >= memory_s else StepTime(memory_s=memory_s)


def calibrated_s(
    predicted: StepTime, baseline: StepTime, baseline_measured_s: float, *, beyond_shrinks: bool = False
) -> float:
    """Predicted seconds, with what the baseline takes beyond the model.

    Launches stay as they are on more GPUs, so it is added once; kernels beside the products share the work as these do
    (``beyond_shrinks``), and it grows and shrinks with them. A baseline that is faster than the model says shrinks
    every prediction alike.
    """
    if baseline_measured_s < baseline.total_s:
        return predicted.total_s * baseline_measured_s / baseline.total_s
    beyond_s = baseline_measured_s - baseline.total_s
    return predicted.total_s + beyond_s * _part_beyond(predicted, baseline, shrinks=beyond_shrinks)


def _part_beyond(predicted: StepTime, baseline: StepTime, *, shrinks: bool) -> float:
    """What remains of the baseline's time beyond the model, as a part of it."""
    if not shrinks:
        return 1.0
    return (predicted.compute_s + predicted.memory_s) / (baseline.compute_s + baseline.memory_s)


def attribute(
    measured_s: float,
    predicted: StepTime,
    baseline_measured_s: float,
    baseline: StepTime,
    *,
    share: float,
    imbalance_fraction: float,
    beyond_shrinks: bool = False,
) -> Shortfall:
    """Parts of ``measured_s`` less ``share`` (the GPUs' ideal: 1/N of the same work) of the baseline's time."""
    compute_s = predicted.compute_s - share * baseline.compute_s
    memory_s = predicted.memory_s - share * baseline.memory_s
    imbalance_s = imbalance_fraction * predicted.compute_s
    beyond_s = max(0.0, baseline_measured_s - baseline.total_s)
    software_s = beyond_s * (_part_beyond(predicted, baseline, shrinks=beyond_shrinks) - share)
    whole_s = measured_s - share * baseline_measured_s
    told_s = compute_s + memory_s + predicted.communication_s + imbalance_s + software_s
    return Shortfall(
        compute_s=compute_s,
        memory_s=memory_s,
        communication_s=predicted.communication_s,
        imbalance_s=imbalance_s,
        software_s=software_s,
        unexplained_s=whole_s - told_s,
    )
