"""Results of a run: estimates, scaling rows, verdicts. ``results.json`` is this, field by field."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pybench.model.manifest import PartOf, Provenance
from pybench.model.record import GpuState, GpuUse
from pybench.model.suite import AxisValue, Order, ScalingKind
from pybench.model.verdict import Counts, Decision, Expected, Verdict

RESULTS_FILE = "results.json"

# 2: comparisons instead of orders, claims, counts of judged rows, and the reason of each decision.
RESULTS_VERSION = 2

PointStatus = Literal["ok", "failed", "skipped", "missing", "does_not_fit"]
"""``does_not_fit``: every attempt ran out of memory, and no other process was on the GPUs; the point is left out."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval, in ``unit``; an end is ``None`` when the spread is unknown.

    ``medians`` has the median step of each good attempt, which value and interval are made from, if any.
    """

    value: float
    low: float | None
    high: float | None
    unit: str
    medians: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """One phase of a step: prefill, decode, or one of the workload's. ``low_j`` and ``high_j`` are the sensor's bound.

    ``duration_s`` is the location over attempts of their median steps, as of every time of a step; joules are means
    over all steps, ``None`` where no sensor was read. ``device_bytes`` and ``host_bytes`` are the most in use at its
    end: on the fullest GPU by every process, and in host memory; ``None`` where the workload reports none.
    """

    name: str
    duration_s: float
    energy_j: float | None
    low_j: float | None
    high_j: float | None
    device_bytes: float | None = None
    host_bytes: float | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PointResult:
    """One point over all its attempts.

    ``reason`` is why ``status`` is not ``ok``; ``flags`` are cautions. ``shared_with`` are the points that a worker
    process also measured, before or after it. ``gpu_states`` is empty where no sensor was read, ``gpus`` where neither
    that nor a rank knows of one. ``digest`` is equal for points of equal work, ``settings`` are the workload's and
    ``effort`` what else the digest covers: steps, warm-up, dither, shared processes; a skipped point lacks all.
    """

    id: str
    benchmark: str
    axes: dict[str, AxisValue]
    status: PointStatus
    reason: str | None
    num_gpus: int
    attempts: int
    failed_attempts: int
    metrics: dict[str, Estimate]
    energy_by_gpu_j: dict[str, float]
    energy_phases: tuple[PhaseResult, ...] = ()
    flags: tuple[str, ...] = ()
    shared_with: tuple[str, ...] = ()
    gpu_states: tuple[GpuState, ...] = ()
    gpus: tuple[GpuUse, ...] = ()
    digest: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    effort: dict[str, bool | int | float] = field(default_factory=dict)


class _Row:
    """A row that is judged."""

    @property
    def point_ids(self) -> tuple[str, ...]:
        """Every point that the row is made from; none of a check that concerns the whole run."""
        names = ("point_id", "baseline_id", "other_id", "first_point_id", "first_other_id")
        return tuple(id_ for name in names if (id_ := getattr(self, name, None)) is not None)


@dataclass(frozen=True, kw_only=True)
class ScalingResult(_Row):
    """One count of one scaling expectation.

    ``speedup`` is X(N)/X(B) for baseline count B (always point over baseline, also where less is
    better). ``efficiency`` is (X(N)/N)/(X(B)/B) for throughput, ``None`` for other metrics.
    """

    benchmark: str
    metric: str
    scaling: ScalingKind
    along: str
    group: dict[str, AxisValue]
    count: int
    baseline_count: int
    point_id: str
    baseline_id: str
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    efficiency: float | None
    expected: Expected | None
    verdict: Verdict
    reason: str
    flags: tuple[str, ...] = ()
    decision: Decision | None = None


@dataclass(frozen=True, kw_only=True)
class CheckResult(_Row):
    """One absolute expectation on one point. ``table``, ``source`` and healthy ``hosts`` are those of a table's row."""

    benchmark: str
    metric: str
    point_id: str
    value: Estimate | None
    minimum: float | None
    maximum: float | None
    verdict: Verdict
    reason: str
    table: str | None = None
    source: str | None = None
    decision: Decision | None = None
    hosts: int | None = None


@dataclass(frozen=True, kw_only=True)
class NodeCheck(_Row):
    """One check of the node itself: ``subject`` names the GPU, rank or link it is about.

    ``value`` is measured and ``limit`` allowed, both in ``unit`` (``fraction``: of the other GPUs' or links' median,
    less one). ``point_id`` is ``None`` for what concerns the whole run.
    """

    name: str
    subject: str
    point_id: str | None
    value: float | None
    limit: float | None
    unit: str
    verdict: Verdict
    reason: str
    decision: Decision | None = None

    @property
    def is_near_others(self) -> bool:
        """Whether a GPU or link is within its limit of distance from the others; it may be undecided."""
        if self.value is None or self.limit is None or self.unit != "fraction":
            return False
        return self.value >= self.limit if self.limit < 0 else self.value <= self.limit


def order_words(order: Order, factor: float) -> str:
    """``below``, or ``above 2 x``."""
    return order if factor == 1 else f"{order} {factor:g} x"


@dataclass(frozen=True, kw_only=True)
class ComparisonResult(_Row):
    """One point against another of the same run: whether its metric is ``below`` or ``above`` ``factor`` times it.

    ``ratio`` is the metric of ``point_id`` over that of ``other_id``. Where the distance must grow along an axis,
    ``widening_along``, it is that ratio at the axis's greatest value over the ratio of ``first_point_id`` to
    ``first_other_id``, the points at its least: below 1 for ``below``.
    """

    benchmark: str
    metric: str
    order: Order
    point_id: str
    other_id: str
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    reason: str
    flags: tuple[str, ...] = ()
    widening_along: str | None = None
    first_point_id: str | None = None
    first_other_id: str | None = None
    factor: float = 1.0
    decision: Decision | None = None

    @property
    def wanted(self) -> str:
        """The order in words: ``below``, ``above 2 x``, or ``further below`` where the distance must grow."""
        return f"further {self.order}" if self.widening_along is not None else order_words(self.order, self.factor)


ExpectationRow = ScalingResult | CheckResult | ComparisonResult
JudgedRow = ExpectationRow | NodeCheck


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """Length and energy of a whole training job at one point: measured steps times their number.

    ``time_h`` and ``energy_j`` are of all ``steps``; the energy is ``None`` where no sensor was read. ``baseline_id``
    is the point with the fewest GPUs among those that differ in their number alone, ``None`` for that point itself. The
    fractions are what is saved of its time and energy, negative where more is needed; ``None`` where either is unknown.
    """

    benchmark: str
    point_id: str
    baseline_id: str | None
    num_gpus: int
    samples: int
    epochs: int
    steps: int
    time_h: Estimate
    energy_j: Estimate | None
    time_saved_fraction: Estimate | None
    energy_saved_fraction: Estimate | None


ClaimState = Literal["kept", "not kept", "open"]


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """A published figure next to the measured one. It judges nothing.

    ``found`` is the ratio to ``baseline_id``, or the metric itself where that is ``None``; with ``widening_along`` that
    ratio at the axis's greatest value over the one at its least, as of :class:`ComparisonResult`. It is *kept* or *not
    kept* when the whole 95 % interval is, else *open*, also without an interval. ``attempts_to_decide`` estimates how
    many attempts would decide it. ``table`` is ``None`` for a claim of the suite itself.
    """

    benchmark: str
    metric: str
    point_id: str
    baseline_id: str | None
    found: Estimate
    minimum: float | None
    maximum: float | None
    state: ClaimState
    source: str
    table: str | None
    widening_along: str | None = None
    attempts_to_decide: int | None = None


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything a report shows of one run. ``node`` is empty for suites that don't measure the node itself.

    ``fingerprint`` is equal for runs on one machine, ``software_key`` for runs whose workers had the same packages,
    images and tuning variables. ``machine_fields`` and ``software_fields`` are what the two are made from, by name, so
    that a difference can be reported field by field. ``left_out`` names, each once, what the plan leaves out and why:
    "8 GPUs (4 here)". ``options`` are the options of the command line that changed the suite, in their written form:
    "--set batch_size=1". ``num_owed`` counts the attempts that the run has still to make: it is running, or was
    interrupted. ``part_of`` is "ab" or "aa" for a run of ``--ab`` or ``--aa``, which no history takes for a night.
    """

    run_id: str
    suite: str
    description: str
    profile: str | None
    machine: str
    fingerprint: str
    software_key: str | None = None
    provenance: Provenance
    verdict: Verdict
    reason: str
    points: tuple[PointResult, ...]
    scaling: tuple[ScalingResult, ...]
    checks: tuple[CheckResult, ...]
    comparisons: tuple[ComparisonResult, ...] = ()
    node: tuple[NodeCheck, ...] = ()
    claims: tuple[ClaimResult, ...] = ()
    jobs: tuple[JobResult, ...] = ()
    counts: Counts = field(default_factory=Counts)
    left_out: tuple[str, ...] = ()
    machine_fields: dict[str, str] = field(default_factory=dict)
    software_fields: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    part_of: PartOf | None = None
    num_owed: int = 0
    schema_version: int = RESULTS_VERSION

    @property
    def expectations(self) -> tuple[ExpectationRow, ...]:
        """The suite's expectations of points: ratios to a baseline, limits, comparisons with other points."""
        return (*self.scaling, *self.checks, *self.comparisons)

    @property
    def rows(self) -> tuple[JudgedRow, ...]:
        """These rows and the checks of the node."""
        return (*self.expectations, *self.node)
