"""Parts of a step, the calibration of a prediction by its baseline, and the parts of a shortfall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pybench.explain.rates import NodeRates


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Predicted seconds of a step: computing, reading and writing memory, and communication that nothing hides."""

    compute_s: float = 0.0
    memory_s: float = 0.0
    communication_s: float = 0.0

    @property
    def work_s(self) -> float:
        """Seconds of computing and memory."""
        return self.compute_s + self.memory_s

    @property
    def total_s(self) -> float:
        """Seconds of all parts."""
        return self.work_s + self.communication_s

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


def total(phases: Sequence[StepTime]) -> StepTime:
    """The sum of a step's phases."""
    return sum(phases, StepTime())


def roofline(rates: NodeRates, flops: float, num_bytes: float) -> StepTime:
    """The longer of computing and moving bytes (Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009)."""
    compute_s, memory_s = flops / rates.matmul_flops_per_s, num_bytes / rates.memory_bytes_per_s
    return StepTime(compute_s=compute_s) if compute_s >= memory_s else StepTime(memory_s=memory_s)


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """Why a step takes longer than the baseline's step over the ratio of GPUs. The parts add up to that difference.

    ``imbalance_s``: cost of the slowest GPU, against GPUs like the baseline's. ``software_s``: the baseline's time
    above its prediction (launches, kernels that are not counted), as far as it does not shrink with more GPUs.
    ``unexplained_s``: measured minus predicted; may be negative.
    """

    compute_s: float
    memory_s: float
    communication_s: float
    imbalance_s: float
    software_s: float
    unexplained_s: float


@dataclass(frozen=True, kw_only=True)
class BaselinePhase:
    """One predicted and measured phase of the baseline; it calibrates the same phase on other GPUs.

    The time above the prediction is added to each prediction: scaled with the work if ``beyond_shrinks`` (kernels), in
    full if not (launches). A phase that is faster than predicted scales each prediction down by the same factor.
    """

    predicted: StepTime
    measured_s: float
    beyond_shrinks: bool = False

    @property
    def pace(self) -> float:
        """Measured over predicted time, at most 1."""
        return min(1.0, self.measured_s / self.predicted.total_s) if self.predicted.total_s else 1.0

    def beyond_s(self, phase: StepTime) -> float:
        """Seconds that ``phase`` takes above its prediction."""
        beyond_s = max(0.0, self.measured_s - self.predicted.total_s)
        return beyond_s * phase.work_s / self.predicted.work_s if self.beyond_shrinks else beyond_s


@dataclass(frozen=True)
class Baseline:
    """The phases of the baseline's step. A single phase calibrates the step as a whole."""

    phases: tuple[BaselinePhase, ...]

    def calibrated_s(self, step: Sequence[StepTime]) -> float:
        """Seconds of a step with these predicted phases, calibrated by the baseline."""
        return sum(own.pace * phase.total_s + own.beyond_s(phase) for own, phase in self.paired(step))

    def communication_fraction(self, step: Sequence[StepTime]) -> float:
        """Share of communication in the last phase of a step, calibrated: of a generation, its decode rounds."""
        own, phase = self.paired(step)[-1]
        return own.pace * phase.communication_s / (own.pace * phase.total_s + own.beyond_s(phase))

    def paired(self, step: Sequence[StepTime]) -> list[tuple[BaselinePhase, StepTime]]:
        """Pairs of the baseline's phases and those of ``step``."""
        phases = [total(step)] if len(self.phases) == 1 else step
        return list(zip(self.phases, phases, strict=True))

    def shortfall(
        self, measured_s: float, *, predicted: Sequence[StepTime], even: Sequence[StepTime], share: float
    ) -> Shortfall:
        """Parts of ``measured_s`` minus ``share`` of the baseline's time (1/N of the same work on N GPUs).

        ``even`` are the phases predicted for GPUs that all have the rates of the baseline's.
        """
        predicted_s = self.calibrated_s(predicted)
        parts, software_s = StepTime(), 0.0
        for own, phase in self.paired(even):
            parts += (phase + own.predicted.times(-share)).times(own.pace)
            software_s += own.beyond_s(phase) - share * own.beyond_s(own.predicted)
        return Shortfall(
            compute_s=parts.compute_s,
            memory_s=parts.memory_s,
            communication_s=parts.communication_s,
            imbalance_s=predicted_s - self.calibrated_s(even),
            software_s=software_s,
            unexplained_s=measured_s - predicted_s,
        )
