"""Traits of a metric."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

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
