"""A suite as read from its file, its expected tables, and the plan of points it expands to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pybench.model.container import ContainerRequest
from pybench.model.decoder_shape import Architecture, DecoderShape
from pybench.model.text import plural
from pybench.model.workloads.registry import AnySettings
from pybench.model.workloads.settings import Range, WorkloadName
from pybench.model.workloads.traits import GivenSettings, SkipKind

MEASURED_BY = ("steps", "max_warmup_steps", "dither_ms", "share_process")
"""Fields of :class:`Effort` that shape a figure; the others shape how many attempts there are, and how long."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much measuring a point gets; the suite file's checks and its JSON Schema are derived from these fields."""

    attempts: Annotated[int, Range(1, 100), "worker processes per point: run-to-run spread"] = 3
    max_attempts: Annotated[int, Range(1, 1000), "attempts at most while a verdict is inconclusive"] = 6
    steps: Annotated[int, Range(1, 10_000), "measured iterations per attempt"] = 5
    max_warmup_steps: Annotated[int, Range(0, 1000), "ceiling of the warm-up, in steps"] = 10
    dither_ms: Annotated[float, Range(0, 1000), "a power sensor's period, over whose phases pauses spread steps"] = 0.0
    time_limit_s: Annotated[float, Range(1, 86_400), "wall clock of one attempt before it is ended"] = 900.0
    collective_timeout_s: Annotated[
        float | None,
        Range(1, 86_400),
        "longest wait of a rank in a collective; default: two thirds of time_limit_s, at most 600",
    ] = None
    share_process: Annotated[bool, "whether a worker process may measure several points of one engine in turn"] = True


AxisValue = str | int | float | bool
ScalingKind = Literal["strong", "weak"]
Order = Literal["below", "above"]


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """The metric's ratio to the baseline point of the same run, against a table; only shown where there is none."""

    metric: Annotated[str, "metric that is judged"]
    scaling: Annotated[ScalingKind, "strong: same work in all; weak: same work per GPU"]
    along: Annotated[str, "axis the GPU count grows along"]
    table: Annotated[str | None, "expected table, a file of expected/ without .toml"] = None
    baseline: Annotated[int | None, Range(1, 1024), "count of the baseline point; default: the smallest"] = None
    form: Literal["scaling"] = "scaling"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The metric itself, in its own unit, against the suite's own limits; at least one is given."""

    metric: Annotated[str, "metric that is judged"]
    minimum: Annotated[float | None, "least acceptable value"] = None
    maximum: Annotated[float | None, "greatest acceptable value"] = None
    form: Literal["limits"] = "limits"


@dataclass(frozen=True, kw_only=True)
class TableFigure:
    """The metric itself against the figures of an expected table."""

    metric: Annotated[str, "metric that is judged"]
    table: Annotated[str, "expected table, a file of expected/ without .toml"]
    gpus: Annotated[int | None, Range(1, 1024), "only points of so many GPUs are judged"] = None
    form: Literal["table_figure"] = "table_figure"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Compares each point's metric with the other benchmark's point of the same GPUs and work.

    It must be at most (``below``) or at least (``above``) ``factor`` times the other's. With ``widening_along`` its
    ratio to the other must also move away from there, from that axis's least value to its greatest. With ``claim`` the
    factor, or the change, is a published figure: reports show it next to the measured one, and it judges nothing.
    """

    metric: Annotated[str, "metric that is judged"]
    order: Annotated[Order, "side of the other benchmark on which the metric must stay"]
    other: Annotated[str, "benchmark that the metric is held against"]
    factor: Annotated[float, Range(0.001, 1000), "how many times the other benchmark's metric; 1 if not given"] = 1.0
    widening_along: Annotated[str | None, "axis along which the distance to the other benchmark must grow"] = None
    claim: Annotated[str | None, "who claims it, and where: shown as kept or not kept, and never judged"] = None
    form: Literal["comparison"] = "comparison"


Expectation = Scaling | Limits | TableFigure | Comparison


def table_of(expectation: Expectation) -> str | None:
    """Name of the expected table that it is judged against, if any."""
    return expectation.table if isinstance(expectation, Scaling | TableFigure) else None


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One ``[[benchmark]]`` table with the profile already applied.

    ``settings`` are the workload's fixed fields, ``axes`` the swept ones in file order, each with its values. Points of
    a ``required`` benchmark that the machine can't run are missing instead of left out. ``gives_rates``: its figures
    predict speedups of others. ``implied`` holds the values that words of the file stand for on this machine, by axis,
    and the batch that ``round_up_batch`` makes, by its setting.
    """

    name: str
    workload: WorkloadName
    settings: dict[str, Any]
    axes: dict[str, tuple[AxisValue, ...]]
    effort: Effort
    expectations: tuple[Expectation, ...] = ()
    required: bool = False
    job: TrainingJob | None = None
    round_up_batch: bool = False
    gives_rates: bool = False
    implied: dict[str, tuple[AxisValue, ...]] = field(default_factory=dict)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Its expectations that hold it against another benchmark, without claims, which judge nothing."""
        return tuple(each for each in self.expectations if isinstance(each, Comparison) and each.claim is None)

    @property
    def given(self) -> GivenSettings:
        """Its settings, fixed and swept."""
        return GivenSettings(self.settings, self.axes)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite file that passed every check, ``profile`` applied; ``own_models`` are those of its files, by name.

    ``omitted`` names the benchmarks that the profile leaves out.
    """

    name: str
    description: str
    benchmarks: tuple[Benchmark, ...]
    profile: str | None = None
    path: str = ""
    container: ContainerRequest = field(default_factory=ContainerRequest)
    own_models: dict[str, Architecture] = field(default_factory=dict, repr=False)
    omitted: tuple[str, ...] = ()

    @property
    def tables(self) -> frozenset[str]:
        """Names of the expected tables that it is judged against."""
        expectations = (expectation for benchmark in self.benchmarks for expectation in benchmark.expectations)
        return frozenset(name for expectation in expectations if (name := table_of(expectation)) is not None)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One combination of axis values, which make its ``id``: what one attempt measures.

    ``architecture`` is ``None`` where no model runs. The figures are scaled to ``job``, which shapes no measurement.
    """

    id: str
    benchmark: str
    axes: dict[str, AxisValue]
    settings: AnySettings
    effort: Effort
    architecture: Architecture | None = field(repr=False)
    job: TrainingJob | None = None

    @property
    def num_gpus(self) -> int:
        """Devices the point occupies."""
        return self.settings.num_gpus

    @cached_property
    def shape(self) -> DecoderShape | None:
        """Sizes of the model; ``None`` where no model runs."""
        return None if self.architecture is None else DecoderShape.from_config(self.architecture)

    @cached_property
    def digest(self) -> str:
        """Hash of all that shapes the measurement, without defaults: a setting that is new in pybench changes none."""
        shaped = {
            "id": self.id,
            "settings": self.settings.chosen(),
            **{name: getattr(self.effort, name) for name in MEASURED_BY},
            "architecture": self.architecture,
        }
        return hashlib.sha256(json.dumps(shaped, sort_keys=True).encode()).hexdigest()[:16]


NOT_INSTALLED = " (not installed)"
"""Follows the name of a missing package; the point's reason has the remedy."""


@dataclass(frozen=True, kw_only=True)
class Skip:
    """A point that can't be measured here, and why. It stays visible in every report.

    ``lacks`` names the missing part, such as ``8 GPUs (4 here)``; ``None`` where no machine could measure the point.
    ``kind`` is the code of the first reason, ``None`` in a plan of an earlier build.
    """

    id: str
    benchmark: str
    axes: dict[str, AxisValue]
    num_gpus: int
    reason: str
    lacks: str | None = None
    kind: SkipKind | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every point of a suite, in the order they run, and those that can't run.

    ``left_out`` lack GPUs or a backend, or the user left them out. ``rates_run`` has the rates that predict speedups.
    """

    points: tuple[Point, ...]
    skips: tuple[Skip, ...]
    left_out: tuple[Skip, ...] = ()
    rates_run: str | None = None

    @cached_property
    def digests(self) -> dict[str, str]:
        """Each point's digest by its id: a record with another one measured something else."""
        return {point.id: point.digest for point in self.points}


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A training job: samples of an epoch, and epochs."""

    samples: Annotated[int, Range(1, 1_000_000_000_000), "samples of an epoch"]
    epochs: Annotated[int, Range(1, 10_000), "passes over all samples"] = 1


ANY = "any"
ANY_GPU = "gpu"
"""A machine of every kind but ``cpu``."""

LEAST_HOSTS = 3
"""A measured row of fewer hosts is provisional: two hosts say nearly nothing of their spread."""

RowKind = Literal["measured", "published", "claim"]


def provisional(hosts: int | None) -> str:
    """A note on a row of fewer than three hosts; empty where it has more, or names none."""
    return "" if hosts is None or hosts >= LEAST_HOSTS else f"provisional row of {plural(hosts, 'host')}"


@dataclass(frozen=True, kw_only=True)
class _Row:
    """Fields of every row. ``any`` in a key matches everything; the closest row wins (``pybench.core.lookup``).

    The figure is either ``value`` with a relative ``tolerance``, or ``minimum`` and/or ``maximum``. A ``claim`` is a
    figure of a guide or a vendor, for any machine: reports show it next to the measured figure. It judges nothing.
    """

    machine: Annotated[str, "machine kind such as h200, gpu for every kind but cpu, or any"]
    workload: Annotated[str, "workload the figure is for"]
    metric: Annotated[str, "metric that the figure is of"]
    count: Annotated[int, Range(1, 100_000), "GPUs"]
    source: Annotated[str, "where the figure comes from"]
    kind: Annotated[RowKind, "measured by us, published with its origin, or a claim, which judges nothing"]
    fabric: Annotated[str, "between GPUs: nvlink, pcie, none or any; between nodes: infiniband, roce or ethernet"] = ANY
    nodes: Annotated[int, Range(1, 1024), "hosts that the GPUs are spread over"] = 1
    backend: Annotated[str, "backend or any"] = ANY
    model_class: Annotated[str, "model size class, such as 8b, or any"] = ANY
    nvls: Annotated[str, "whether NCCL may reduce in the NVSwitches (NVLink SHARP): on, off or any"] = ANY
    where: Annotated[dict[str, AxisValue], "settings that a point must have"] = field(default_factory=dict)
    conditions: Annotated[str, "more conditions of the figure, such as a message size"] = ""
    value: Annotated[float | None, Range(0), "expected figure"] = None
    tolerance: Annotated[float, Range(0, 1), "relative tolerance of value"] = 0.05
    minimum: Annotated[float | None, Range(0), "least acceptable figure"] = None
    maximum: Annotated[float | None, Range(0), "greatest expected figure"] = None
    hosts: Annotated[int | None, Range(1, 100_000), "healthy hosts that the figure comes from"] = None
    runs: Annotated[int | None, Range(1, 100_000), "runs on these hosts"] = None

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """Least and greatest expected figure: the range, or the value with its tolerance."""
        if self.value is None:
            return self.minimum, self.maximum
        return self.value * (1 - self.tolerance), self.value * (1 + self.tolerance)

    @property
    def key(self) -> str:
        """All that tells the row from others of its table: its fields without the figure and its origin."""
        settings = dict(sorted(self.where.items()))
        figure: dict[str, Any] = dict.fromkeys(("value", "minimum", "maximum", "hosts", "runs"))
        return repr(replace(self, where=settings, tolerance=0.0, source="", **figure))


@dataclass(frozen=True, kw_only=True)
class RatioRow(_Row):
    """The metric's ratio to the baseline, point over baseline; ``where`` is of the point."""

    baseline_count: Annotated[int, Range(1, 100_000), "GPUs of the baseline"] = 1
    form: Literal["ratio"] = "ratio"


@dataclass(frozen=True, kw_only=True)
class FigureRow(_Row):
    """The metric itself, for points of ``count`` GPUs."""

    unit: Annotated[str, "unit of an absolute figure; none for a ratio"]
    per_gpu: Annotated[bool, "an absolute figure of each GPU or link: holds for count GPUs and more"] = False
    form: Literal["figure"] = "figure"


ExpectedRow = RatioRow | FigureRow


@dataclass(frozen=True, kw_only=True)
class ExpectedTable:
    """A file of ``suites/expected/``."""

    name: str
    description: str
    rows: tuple[ExpectedRow, ...]
