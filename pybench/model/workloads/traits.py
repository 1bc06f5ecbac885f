"""Declaration of a workload: settings, metrics, and how its GPUs compare."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, ClassVar, Literal

from pybench.model.workloads.rules import Range, Rule, ScalingRule
from pybench.model.workloads.settings import Degree, Settings

OverRanks = Literal["max", "min", "mean", "sum"]


@dataclass(frozen=True, kw_only=True)
class MetricTraits:
    """One metric: its unit and whether more is better.

    ``over_ranks`` joins the values that ranks report into the point's; ``None`` for metrics that the host computes,
    which no rank may report. ``part_of_step``: a time within one step. ``of_all_gpus``: a throughput of all GPUs
    together, which has an efficiency.
    """

    unit: str
    higher_is_better: bool
    description: str
    over_ranks: OverRanks | None = None
    part_of_step: bool = False
    of_all_gpus: bool = False

    @property
    def is_of_energy(self) -> bool:
        """Whether it needs power sensors: joules, watts, and what is divided by them."""
        return "J" in self.unit or "W" in self.unit

    @property
    def sign(self) -> float:
        """Factor by which logarithms are turned so that more is better."""
        return 1.0 if self.higher_is_better else -1.0


def more(unit: str, description: str, over_ranks: OverRanks | None = None) -> MetricTraits:
    """A metric that should be high."""
    return MetricTraits(unit=unit, higher_is_better=True, description=description, over_ranks=over_ranks)


def throughput(unit: str, description: str) -> MetricTraits:
    """A rate summed over all GPUs; ideally proportional to their number."""
    return replace(more(unit, description), of_all_gpus=True)


def part_of_step(traits: MetricTraits) -> MetricTraits:
    """The metric of a time that lies within one step: no rank may report a longer one."""
    return replace(traits, part_of_step=True)


def less(unit: str, description: str, over_ranks: OverRanks | None = None) -> MetricTraits:
    """A metric that should be low."""
    return MetricTraits(unit=unit, higher_is_better=False, description=description, over_ranks=over_ranks)


# A step of many operations is long against a clock's grain; a typing slip must not make it a day.
Repeats = Range(1, 100_000)
# 16 TiB: more than any device holds.
Bytes = Range(1, 2**44)


@dataclass(frozen=True, kw_only=True)
class NodeSettings(Settings):
    """Settings of a workload that runs one rank on each of ``gpus`` devices and no model."""

    least_gpus: ClassVar[int] = 1

    gpus: Annotated[int, Degree, "GPUs (CPU cores without any) that take part, each with one rank"] = 1

    @property
    def num_gpus(self) -> int:
        """Devices that the point occupies."""
        return self.gpus


_EVERY = {
    "step_s": less("s", "length of one step"),
    "energy_j": less("J", "energy of one step, all GPUs together"),
    "mean_power_w": less("W", "energy over time while measuring, all GPUs together"),
    "peak_memory_bytes": less("bytes", "most device memory that one rank's backend held", "max"),
    "nvlink_bytes": less(
        "bytes", "data that the GPUs send over NVLink in a step, all together, by the driver's counters"
    ),
    "nvlink_bytes_per_s_per_gpu": more("bytes/s", "nvlink_bytes over the steps' mean length, for each GPU"),
    "startup_s": less("s", "from the launch to the first warm-up step"),
}
_EVERY_RANK = dict.fromkeys(("peak_reserved_memory_bytes", "device_memory_used_bytes", "nvlink_sent_bytes"), "bytes")


@dataclass(frozen=True, kw_only=True)
class WorkloadTraits:
    """One workload. Its name is the default of ``settings.workload``.

    ``metrics`` are those that no other workload need have. ``headline`` is the metric that reports show first.
    ``rank_values`` are values that a rank may report and that stay its own, each with its unit; ``{rank}`` in a name is
    the number of a rank or GPU. ``slower_fraction`` is how far a healthy GPU's headline may
    lie below the median of the others, ``None`` where GPUs are not compared. ``loads_gpu``: the workload keeps a GPU
    busy all the time, so that power, temperature and clock of GPUs can be compared. ``rules`` are what its settings
    must satisfy together, and ``scaling_rules`` what an expectation of scaling needs of them. ``phases`` name the
    parts that a step may have. ``shared_batch`` is the setting of the samples that all GPUs share in a step.
    """

    settings: type[Settings]
    metrics: dict[str, MetricTraits]
    headline: str
    rank_values: dict[str, str] = field(default_factory=dict)
    slower_fraction: float | None = None
    loads_gpu: bool = False
    phases: tuple[str, ...] = ()
    shared_batch: str | None = None
    rules: Rule = lambda _given: iter(())
    scaling_rules: ScalingRule = lambda _given, _scaling, _along: iter(())

    @property
    def name(self) -> str:
        """Name of the workload."""
        return str(next(field.default for field in fields(self.settings) if field.name == "workload"))

    @property
    def all_metrics(self) -> dict[str, MetricTraits]:
        """Metrics of this workload and of every workload."""
        return {**self.metrics, **_EVERY}

    def reported_unit(self, name: str) -> str | None:
        """Unit of a value that a rank may report under ``name``; ``None`` where it may report none."""
        metric = self.all_metrics.get(name)
        if metric is not None:
            return metric.unit if metric.over_ranks is not None else None
        return ({**self.rank_values, **_EVERY_RANK}).get(re.sub(r"_\d+(?=_)", "_{rank}", name))
