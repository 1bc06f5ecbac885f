"""Declaration of a workload: settings, metrics, rules, and how its GPUs compare."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import partial
from typing import Literal

from pybench.model.workloads.settings import Settings

OverRanks = Literal["max", "min", "mean", "sum"]


@dataclass(frozen=True)
class MetricTraits:
    """One metric: its unit and whether more is better.

    ``over_ranks`` joins the values that ranks report into the point's; ``None``: the host computes it, and no rank may
    report it. ``part_of_step``: a time within one step. ``of_all_gpus``: a rate of all GPUs together has an efficiency.
    ``is_count``: its settings decide it, so every attempt has the same value.
    """

    unit: str
    description: str
    over_ranks: OverRanks | None = None
    _: KW_ONLY
    higher_is_better: bool
    part_of_step: bool = False
    of_all_gpus: bool = False
    is_count: bool = False

    @property
    def is_of_energy(self) -> bool:
        """Whether it needs power sensors: joules, watts, and what is divided by them."""
        return "J" in self.unit or "W" in self.unit

    @property
    def sign(self) -> float:
        """Factor by which logarithms are turned so that more is better."""
        return 1.0 if self.higher_is_better else -1.0


more = partial(MetricTraits, higher_is_better=True)
less = partial(MetricTraits, higher_is_better=False)
throughput = partial(more, of_all_gpus=True)
"""A rate summed over all GPUs; ideally proportional to their number."""


@dataclass(frozen=True)
class GivenSettings:
    """The settings of a benchmark: ``fixed`` ones, and ``axes`` with the values that each takes in turn."""

    fixed: Mapping[str, object]
    axes: Mapping[str, Sequence[object]]

    def values(self, name: str) -> tuple[object, ...]:
        """Values that a setting has in the benchmark's points; empty where it is not given."""
        if name in self.axes:
            return tuple(self.axes[name])
        return (self.fixed[name],) if name in self.fixed else ()


@dataclass(frozen=True)
class Breach:
    """A rule that a benchmark breaks, and the ``key`` to change; ``None`` where no single key is at fault."""

    message: str
    key: str | None = None


Lack = Literal["gpus", "nodes", "device", "package", "max_gpus", "time_limit", "filter"]
"""The machine lacks this for a point, or the user's limit excludes it; ``device``: GPUs, where CPU cores are."""
Fault = Literal["unsupported", "number_type", "uneven", "length", "settings", "memory"]
"""Why settings can't run here; ``uneven``: a degree does not divide a number; ``length``: tokens exceed a limit."""
SkipKind = Lack | Fault
Reason = tuple[SkipKind, str]
"""Why a point can't run: its kind, and a sentence for the user."""


@dataclass(frozen=True)
class Need:
    """A setting that needs another one: the values of ``option`` in ``when`` need ``other`` to be in ``wanted``.

    ``when``: ``None`` stands for every given value. ``wanted``: ``None`` stands for every given value, and a ``None``
    among several values for a setting that is not given. ``why`` is the message.
    """

    option: str
    other: str
    wanted: Container[object] | None = None
    why: str = ""
    when: Container[object] | None = None


def unmet_needs(given: GivenSettings, needs: Iterable[Need]) -> Iterator[Breach]:
    """A breach for each need that the settings do not meet."""
    for need in needs:
        options = [value for value in given.values(need.option) if value is not None]
        applies = any(need.when is None or value in need.when for value in options)
        others = [value for value in given.values(need.other) if need.wanted is not None or value is not None]
        is_met = bool(others) if need.wanted is None else all(value in need.wanted for value in others or [None])
        if applies and not is_met:
            yield Breach(need.why or f"needs {need.other}", need.option)


def shared_work(_given: GivenSettings, scaling: str, _along: str) -> Iterator[Breach]:
    """Rules of workloads whose ``batch_size`` counts all GPUs: more GPUs have the same work."""
    if scaling == "weak":
        yield Breach("batch_size is of all GPUs, so that more of them have the same work: take 'strong'", "scaling")


EVERY = {
    "step_s": less("s", "length of one step"),
    "energy_j": less("J", "energy of one step, all GPUs together"),
    "mean_power_w": less("W", "energy over time while measuring, all GPUs together"),
    "peak_memory_bytes": less("bytes", "most device memory that one rank's backend held", "max"),
    "nvlink_bytes": less("bytes", "data that all GPUs send over NVLink in a step, by the driver's counters"),
    "nvlink_bytes_per_s_per_gpu": more("bytes/s", "nvlink_bytes over the steps' mean length, for each GPU"),
    "startup_s": less("s", "from the launch to the first warm-up step"),
}
_EVERY_RANK = dict.fromkeys(("peak_reserved_memory_bytes", "device_memory_used_bytes", "nvlink_sent_bytes"), "bytes")


@dataclass(frozen=True, kw_only=True)
class WorkloadTraits:
    """One workload. Its name is the default of ``settings.workload``.

    ``metrics`` are those that no other workload need have. ``rank_values`` may be reported by a rank and stay its own,
    each with its unit; ``{rank}`` in a name is the number of a rank or GPU. ``slower_fraction`` is how far a healthy
    GPU's headline may lie below the median of the others, ``None`` where GPUs are not compared. ``loads_gpu``: the
    workload keeps a GPU busy all the time, so that power, temperature and clock of GPUs can be compared. ``rules`` are
    what its settings must satisfy together, ``scaling_rules`` what an expectation of scaling needs of them. ``phases``
    name the parts that a step may have. ``shared_batch`` is the setting of the samples that all GPUs share in a step.
    """

    settings: type[Settings]
    metrics: dict[str, MetricTraits]
    rank_values: dict[str, str] = field(default_factory=dict)
    slower_fraction: float | None = None
    loads_gpu: bool = False
    phases: tuple[str, ...] = ()
    shared_batch: str | None = None
    rules: Callable[[GivenSettings], Iterator[Breach]] = lambda _given: iter(())
    # Of settings, kind of scaling and its axis; a breach's key is a key of the expectation.
    scaling_rules: Callable[[GivenSettings, str, str], Iterator[Breach]] = lambda _given, _scaling, _along: iter(())

    @property
    def name(self) -> str:
        """Name of the workload."""
        return str(next(field.default for field in fields(self.settings) if field.name == "workload"))

    @property
    def headline(self) -> str:
        """The metric that reports show first."""
        return next(iter(self.metrics))

    def reported_unit(self, name: str) -> str | None:
        """Unit of a value that a rank may report under ``name``; ``None`` where it may report none."""
        metric = self.metrics.get(name, EVERY.get(name))
        if metric is not None:
            return metric.unit if metric.over_ranks is not None else None
        return ({**self.rank_values, **_EVERY_RANK}).get(re.sub(r"_\d+(?=_)", "_{rank}", name))
