"""Parts of a step, the calibration of a prediction by its baseline, and the parts of a shortfall."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from operator import add, mul

# An all-reduce does the work of a reduce-scatter and an all-gather, so it bounds either where that was not measured.
_BOUND = "all_reduce"
MIN_SIZES = 2


class UnmeasuredError(Exception):
    """The node's run lacks a rate that a prediction needs; the message names it."""


@dataclass(frozen=True)
class AlphaBeta:
    """A message takes ``alpha_s`` plus ``beta_s_per_byte`` for each byte; ``sizes``: least and most that were measured.

    Source: R. W. Hockney, The communication challenge for MPP, Parallel Computing 20 (1994).
    """

    alpha_s: float
    beta_s_per_byte: float
    sizes: tuple[float, float] = (0.0, math.inf)

    def time_s(self, num_bytes: float) -> float:
        """Seconds of a message of this size."""
        return self.alpha_s + self.beta_s_per_byte * num_bytes


def fit(curve: Sequence[tuple[float, float]]) -> AlphaBeta:
    """Least squares of the relative error over (bytes, seconds), with neither latency nor bandwidth below 0.

    Relative errors give small sizes, which alone show the latency, the weight of large ones. Raises ``ValueError`` with
    fewer than two sizes, or with a time that is not positive.
    """
    if len({size for size, _ in curve}) < MIN_SIZES or any(time_s <= 0 for _, time_s in curve):
        raise ValueError(f"a fit needs times of two sizes, found {list(curve)}")
    # Columns of the design matrix, each row divided by its time: alpha / t + beta s / t should be 1.
    ones, sizes = [1 / t for _, t in curve], [s / t for s, t in curve]
    pairs = ((ones, ones), (ones, sizes), (sizes, sizes))
    aa, ab, bb = (math.fsum(map(mul, left, right)) for left, right in pairs)
    a, b = sum(ones), sum(sizes)
    determinant = aa * bb - ab * ab
    alpha, beta = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if alpha < 0:
        alpha, beta = 0.0, b / bb
    elif beta < 0:
        alpha, beta = a / aa, 0.0
    return AlphaBeta(alpha, beta, (min(size for size, _ in curve), max(size for size, _ in curve)))


@dataclass(frozen=True, kw_only=True)
class NodeRates:
    """Rates of the slowest GPU and of the slowest link between two GPUs; ``None``: not measured.

    ``launch_s`` is the host's time to launch one kernel on a GPU. ``gpus`` has FLOP/s and bytes/s of each GPU by name.
    ``collectives`` has a fit for each operation and number of GPUs. ``between_nodes`` has the collectives over all GPUs
    of several nodes, by the number of nodes; ``num_nodes`` is the number that ``collectives`` cover. ``extrapolated``
    takes the operations and sizes beyond those that were measured, of all copies of the rates.
    """

    matmul_flops_per_s: float
    memory_bytes_per_s: float
    peer_bytes_per_s: float | None = None
    launch_s: float | None = None
    gpus: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    collectives: Mapping[tuple[str, int], AlphaBeta] = field(default_factory=dict)
    between_nodes: Mapping[int, Mapping[tuple[str, int], AlphaBeta]] = field(default_factory=dict)
    num_nodes: int = 1
    extrapolated: set[tuple[str, float]] = field(default_factory=set, compare=False)

    def over(self, num_nodes: int) -> NodeRates:
        """The rates with the collectives over ``num_nodes`` nodes."""
        if num_nodes == 1:
            return self
        return replace(
            self, collectives=self.between_nodes.get(num_nodes, {}), peer_bytes_per_s=None, num_nodes=num_nodes
        )

    def on(self, names: Iterable[str]) -> NodeRates:
        """The rates of the slowest of these GPUs. Every name must be in ``gpus``."""
        flops, moved = zip(*(self.gpus[name] for name in names), strict=True)
        return replace(self, matmul_flops_per_s=min(flops), memory_bytes_per_s=min(moved))

    def collective_s(self, operation: str, num_bytes: float, count: int) -> float:
        """Seconds of one operation over ``count`` GPUs; 0 for one GPU. Raises :class:`UnmeasuredError`."""
        if count == 1:
            return 0.0
        curve = self.collectives.get((operation, count)) or self.collectives.get((_BOUND, count))
        if curve is None:
            over = f" over {self.num_nodes} nodes" if self.num_nodes > 1 else ""
            raise UnmeasuredError(f"the node's run has no size curve of {operation} on {count} GPUs{over}")
        if not curve.sizes[0] <= num_bytes <= curve.sizes[1]:
            self.extrapolated.add((operation, num_bytes))
        return curve.time_s(num_bytes)

    def send_s(self, num_bytes: float) -> float:
        """Seconds from one GPU to the next. Raises :class:`UnmeasuredError`."""
        if self.num_nodes > 1:
            raise UnmeasuredError("the model knows no copy between nodes (pipeline_parallel)")
        if self.peer_bytes_per_s is None:
            raise UnmeasuredError("the node's run has no peer_copy; measure node_check")
        return num_bytes / self.peer_bytes_per_s


@dataclass(frozen=True)
class StepTime:
    """Predicted seconds of a step: computing, reading and writing memory, and communication that nothing hides."""

    compute_s: float = 0.0
    memory_s: float = 0.0
    communication_s: float = 0.0

    @property
    def by_name(self) -> dict[str, float]:
        """Seconds of each part."""
        return dict(zip(("compute", "memory", "communication"), astuple(self), strict=True))

    @property
    def work_s(self) -> float:
        """Seconds of computing and memory."""
        return self.compute_s + self.memory_s

    @property
    def total_s(self) -> float:
        """Seconds of all parts."""
        return self.work_s + self.communication_s

    def __add__(self, other: StepTime) -> StepTime:
        return StepTime(*map(add, astuple(self), astuple(other)))

    def times(self, factor: float) -> StepTime:
        """The time of ``factor`` such steps."""
        return StepTime(*(seconds * factor for seconds in astuple(self)))


def total(phases: Sequence[StepTime]) -> StepTime:
    """The sum of a step's phases."""
    return sum(phases, StepTime())


def roofline(rates: NodeRates, flops: float, num_bytes: float) -> StepTime:
    """The longer of computing and moving bytes (Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009)."""
    compute_s, memory_s = flops / rates.matmul_flops_per_s, num_bytes / rates.memory_bytes_per_s
    return StepTime(compute_s=compute_s) if compute_s >= memory_s else StepTime(memory_s=memory_s)


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
        return sum(base.pace * phase.total_s + base.beyond_s(phase) for base, phase in self.paired(step))

    def communication_fraction(self, step: Sequence[StepTime]) -> float:
        """Share of communication in the last phase of a step, calibrated: of a generation, its decode rounds."""
        base, phase = self.paired(step)[-1]
        return base.pace * phase.communication_s / (base.pace * phase.total_s + base.beyond_s(phase))

    def paired(self, step: Sequence[StepTime]) -> list[tuple[BaselinePhase, StepTime]]:
        """Pairs of the baseline's phases and those of ``step``."""
        phases = [total(step)] if len(self.phases) == 1 else step
        return list(zip(self.phases, phases, strict=True))

    def shortfall(
        self, measured_s: float, *, predicted: Sequence[StepTime], even: Sequence[StepTime], share: float
    ) -> dict[str, float]:
        """Parts of ``measured_s`` minus ``share`` of the baseline's time (1/N of the same work on N GPUs), in s.

        ``even`` are the phases predicted for GPUs that all have the rates of the baseline's. The parts add up to the
        difference. ``imbalance``: cost of the slowest GPU, against GPUs like the baseline's. ``software``: the
        baseline's time above its prediction (launches, kernels that are not counted), as far as it does not shrink with
        more GPUs. ``unexplained``: measured minus predicted; may be negative.
        """
        predicted_s = self.calibrated_s(predicted)
        parts, software_s = StepTime(), 0.0
        for base, phase in self.paired(even):
            parts += (phase + base.predicted.times(-share)).times(base.pace)
            software_s += base.beyond_s(phase) - share * base.beyond_s(base.predicted)
        return {
            **parts.by_name,
            "imbalance": predicted_s - self.calibrated_s(even),
            "software": software_s,
            "unexplained": measured_s - predicted_s,
        }
