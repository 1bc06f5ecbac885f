"""Every figure of a node, or of one GPU, compared with those of the fleet's others.

Figures that one cause moves together form a group, so that one cause counts once: the least probable figure of a group,
corrected for their number (Simes). Over all nodes, GPUs and groups the share of false discoveries is controlled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, median
from typing import Generic, NamedTuple

from pybench.core.measurements import grouped
from pybench.core.node_checks import SLOWER_FRACTION
from pybench.core.statistics.false_discovery import FALSE_DISCOVERIES, discoveries, joint_probability
from pybench.core.statistics.interval import as_fraction
from pybench.core.statistics.spread import Variance, variance_of
from pybench.core.statistics.units import (
    MIN_UNITS,
    Others,
    Unit,
    lower_group,
    moderated,
    others_by_unit,
    prior_of,
    spread_of,
)
from pybench.fleet.values import GpuOfNode, GroupSpread, NodeRun, Symptom
from pybench.model.figures import FigureKey, SmallestEffects
from pybench.model.workloads.registry import HEADLINES, METRICS, SLOWER_FRACTIONS

_GROUPS = {
    "matmul_flops_per_s": "products",
    "burn_flops_per_s": "products",
    "memory_bytes_per_s": "memory",
    "host_copy_bytes_per_s": "host copies",
    "peer_copy_bytes_per_s": "links",
    "busbw_bytes_per_s": "links",
    "launch_s": "launches",
}
_LEAST_BAD_FRACTION = 0.05
"""Healthy hosts of one kind with H100 or H200 differ by 2 to 5 %."""
_TOLERANCE_ON_CPU = 0.5
"""CPU nodes, and launches on any node: attempts of one GPU were 1 to 51 µs apart."""
_SE_OF_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of normal values."""
_LEAST_CLOCK_FRACTION = 0.01
_LEAST_CELSIUS = 5.0
_MIN_SHARE = 5
"""Each of two groups of nodes has at least one node in five, and four nodes."""


def group_of(metric: str) -> str | None:
    """The group of a speed; ``None`` for a metric of no speed, such as joules or memory in use."""
    return _GROUPS.get(metric, "models") if metric in HEADLINES else None


def tolerance(metric: str, *, on_gpu: bool) -> float:
    """Fraction by which the GPUs of one healthy node may differ. A node that is slower by more is bad by one run."""
    if not on_gpu or group_of(metric) == "launches":
        return _TOLERANCE_ON_CPU
    return SLOWER_FRACTIONS.get(metric, SLOWER_FRACTION)


def bad_fraction(metric: str, *, on_gpu: bool) -> float:
    """Fraction from which a node is bad where two runs show it: half of the tolerance, at least 5 %."""
    return max(_LEAST_BAD_FRACTION, tolerance(metric, on_gpu=on_gpu) / 2)


@dataclass(frozen=True)
class Reading:
    """One figure of one unit: a logarithm for each run, and the variance of their mean by the unit's own attempts."""

    runs: tuple[float, ...]
    variance: float = 0.0

    @property
    def value(self) -> float:
        """Mean over its runs."""
        return fmean(self.runs)


class Distance(NamedTuple):
    """Deviation of a unit from the others (negative: lower), and the probability of a figure this low by chance."""

    row: FigureKey
    deviation: float
    p: float
    usual: float


@dataclass(frozen=True)
class Figures(Generic[Unit]):
    """Readings of every unit by row. ``slower`` are the units of the slower group of a figure's group, if any."""

    rows: Mapping[FigureKey, Mapping[Unit, Reading]]
    slower: Mapping[str, frozenset[Unit]] = field(default_factory=dict)

    @cached_property
    def compared(self) -> Mapping[tuple[FigureKey, bool], Mapping[Unit, Reading]]:
        """Rows of enough units; units of a slower group are compared with each other."""
        compared: dict[tuple[FigureKey, bool], dict[Unit, Reading]] = {}
        for row, units in self.rows.items():
            slower = self.slower.get(group_of(row.metric) or "", frozenset())
            for unit, reading in units.items():
                compared.setdefault((row, unit in slower), {})[unit] = reading
        return {key: units for key, units in compared.items() if len(units) >= MIN_UNITS}

    @cached_property
    def spreads(self) -> Mapping[tuple[FigureKey, bool], Variance]:
        """Variance between the units of each row."""
        return {key: spread_of([reading.value for reading in units.values()]) for key, units in self.compared.items()}

    @cached_property
    def distances(self) -> Mapping[tuple[Unit, str], list[Distance]]:
        """Of every unit, by its group of figures."""
        common = prior_of(self.spreads)
        by_group: dict[tuple[Unit, str], list[Distance]] = {}
        for (row, _), units in self.compared.items():
            values = {unit: reading.value for unit, reading in units.items()}
            for unit, others in others_by_unit(values, common):
                p = others.p_lower(values[unit], own_variance=units[unit].variance)
                distance = Distance(row, values[unit] - others.mean, p, others.mean)
                by_group.setdefault((unit, group_of(row.metric) or row.metric), []).append(distance)
        return by_group

    @cached_property
    def probabilities(self) -> Mapping[tuple[Unit, str], float]:
        """Of each unit's group of figures by chance."""
        return {key: joint_probability({d.row: d.p for d in of_group}) for key, of_group in self.distances.items()}

    def lowest(self, unit: Unit, group: str) -> Distance:
        """The least probable figure of a group."""
        return min(self.distances[unit, group], key=lambda distance: (distance.p, distance.deviation))

    def spread(self, group: str) -> float:
        """Standard deviation between units in a group: that of its median row."""
        of_group = (spread for (row, _), spread in self._moderated.items() if group_of(row.metric) == group)
        return median(math.sqrt(variance) for variance, _ in of_group)

    def detectable(self, group: str) -> float | None:
        """The shortfall of one unit that is found with 95 % power; ``None`` where the group is not compared."""
        level = FALSE_DISCOVERIES / max(len(self.probabilities), 1)
        fractions = [
            Others(0.0, variance, freedom, len(self.compared[key]) - 1).detectable_fraction(level)
            for key, (variance, freedom) in self._moderated.items()
            if group_of(key[0].metric) == group
        ]
        return median(fractions) if fractions else None

    @cached_property
    def _moderated(self) -> Mapping[tuple[FigureKey, bool], Variance]:
        return moderated(self.spreads)


@dataclass(frozen=True)
class SlowFigures:
    """The figures of nodes of one kind, and which of them are slow."""

    runs: Sequence[NodeRun]
    effects: SmallestEffects

    @cached_property
    def nodes(self) -> Figures[str]:
        """The figures of whole nodes."""
        medians: dict[FigureKey, dict[str, list[tuple[float, ...]]]] = {}
        for run in self.runs:
            for point in run.figures.points:
                for metric, values in point.medians.items():
                    if group_of(metric) is not None and point.is_alone and min(values) > 0:
                        medians.setdefault(FigureKey(point.id, metric), {}).setdefault(run.node, []).append(values)
        rows = {row: {node: _reading(row, runs) for node, runs in units.items()} for row, units in medians.items()}
        smallest = math.log1p(self.effects.default)
        return Figures(rows, {group: low for group in _groups(rows) if (low := _slower_nodes(rows, group, smallest))})

    @cached_property
    def gpus(self) -> Figures[GpuOfNode]:
        """The figures of single GPUs, where the runs' folders have them and nodes have several."""
        medians: dict[FigureKey, dict[GpuOfNode, list[tuple[float, ...]]]] = {}
        for run in self.runs:
            alone = {point.id for point in run.figures.points if point.is_alone}
            for row, units in run.gpus.items():
                for uuid, values in units.items() if row.point_id in alone and len(units) > 1 else ():
                    if min(values) > 0:
                        medians.setdefault(row, {}).setdefault(GpuOfNode(run.node, uuid), []).append(values)
        rows = {row: {unit: _reading(row, runs) for unit, runs in units.items()} for row, units in medians.items()}
        every = {unit for of_row in rows.values() for unit in of_row}
        slower = {group: frozenset(u for u in every if u.node in names) for group, names in self.nodes.slower.items()}
        return Figures(rows, slower)

    @property
    def spreads(self) -> Iterator[GroupSpread]:
        """How nodes differ in each group of figures."""
        for group in _groups(row for row, _ in self.nodes.compared):
            rows = [units for row, units in self.nodes.rows.items() if group_of(row.metric) == group]
            slower = self.nodes.slower.get(group, frozenset())
            yield GroupSpread(
                name=group,
                num_nodes=max(map(len, rows)),
                spread_fraction=self.nodes.spread(group),
                detectable_fraction=self.nodes.detectable(group) or 0.0,
                gpu_fraction=self.gpus.detectable(group),
                slower=tuple(sorted(slower)),
                slower_fraction=_fraction_between(rows, slower) if slower else None,
            )

    @cached_property
    def symptoms(self) -> Mapping[str, Sequence[Symptom]]:
        """Figures that are slow among all nodes, GPUs and groups, by node."""
        whole = {(GpuOfNode(node, ""), group): p for (node, group), p in self.nodes.probabilities.items()}
        slow = discoveries({**whole, **self.gpus.probabilities})
        gpus = grouped(((unit.node, group), unit) for unit, group in self.gpus.probabilities)
        by_node: dict[str, list[Symptom]] = {}
        for node, group in self.nodes.probabilities:
            units = gpus.get((node, group), [])
            low = [self.nodes.lowest(node, group)] if (GpuOfNode(node, ""), group) in slow else []
            low += [self.gpus.lowest(unit, group) for unit in units if (unit, group) in slow]
            if low:
                by_node.setdefault(node, []).extend(self._of_group(node, group, units, low))
        return {node: symptoms for node, symptoms in by_node.items() if symptoms}

    def _of_group(
        self, node: str, group: str, units: Sequence[GpuOfNode], low: Sequence[Distance]
    ) -> Iterator[Symptom]:
        """Symptoms of single GPUs if at most half of the node's GPUs are nearly as ``low``; else of the node."""
        limit = min(distance.deviation for distance in low) / 2
        by_gpu = {unit: min(self.gpus.distances[unit, group], key=lambda d: d.deviation) for unit in units}
        slow = [unit for unit, distance in by_gpu.items() if distance.deviation <= limit]
        if 0 < 2 * len(slow) <= len(units):
            for unit in slow:
                distance = by_gpu[unit]
                if self._is_large(distance):
                    index = next((run.indices.get(unit.uuid) for run in self.runs if run.node == node), None)
                    name = unit.uuid if index is None else f"GPU {index} ({unit.uuid})"
                    text = self._conditions(node, distance.row, unit.uuid)
                    yield self._symptom(distance, self.gpus.rows[distance.row][unit], text, name)
        elif self._is_large(distance := self.nodes.lowest(node, group)):
            of_row = [d for unit in units for d in self.gpus.distances[unit, group] if d.row == distance.row]
            num = sum(map(self._is_large, of_row))
            parts = (f"{num} of its {len(units)} GPUs" if units else "", self._conditions(node, distance.row, None))
            yield self._symptom(distance, self.nodes.rows[distance.row][node], "; ".join(filter(None, parts)))

    def _is_large(self, distance: Distance) -> bool:
        return distance.deviation <= -math.log1p(self.effects.of(distance.row.metric))

    def _symptom(self, distance: Distance, reading: Reading, text: str, gpu: str | None = None) -> Symptom:
        metric, on_gpu = METRICS[distance.row.metric], bool(self.runs[0].uuids)
        fractions = [as_fraction(run - distance.usual) for run in reading.runs]
        num_bad = sum(fraction <= -bad_fraction(distance.row.metric, on_gpu=on_gpu) for fraction in fractions)
        is_far = as_fraction(distance.deviation) <= -tolerance(distance.row.metric, on_gpu=on_gpu)
        return Symptom(
            group=group_of(distance.row.metric) or distance.row.metric,
            text=text,
            gpu=gpu,
            fraction=as_fraction(distance.deviation),
            p=distance.p,
            row=distance.row,
            value=1 + as_fraction(metric.sign * reading.value),
            usual=1 + as_fraction(metric.sign * distance.usual),
            unit=metric.unit,
            num_low=sum(fraction <= -self.effects.of(distance.row.metric) for fraction in fractions),
            num_measured=len(fractions),
            is_bad=is_far or num_bad > 1,
        )

    def _conditions(self, node: str, row: FigureKey, uuid: str | None) -> str:
        """Differences from the other nodes: clock from 1 % on, temperature from 5 °C on, causes of throttling."""
        every = [(run.node, state) for run in self.runs for state in run.states.get(row.point_id, ())]
        states = [state for name, state in every if name == node and uuid in {None, state.uuid}]
        others = [state for name, state in every if name != node]
        parts = []
        clock, usual = (_median([state.sm_clock_hz for state in of]) for of in (states, others))
        if clock and usual and abs(clock / usual - 1) >= _LEAST_CLOCK_FRACTION:
            parts.append(f"SM clock {clock / 1e6:,.0f} MHz (others {usual / 1e6:,.0f})")
        hottest_c = max((state.temperature_c for state in states if state.temperature_c is not None), default=None)
        usual_c = _median([state.temperature_c for state in others])
        if hottest_c is not None and usual_c is not None and abs(hottest_c - usual_c) >= _LEAST_CELSIUS:
            parts.append(f"{hottest_c:.0f} °C (others {usual_c:.0f})")
        known = {word for state in others for word in state.held_by or ()}
        if held := sorted({word for state in states for word in state.held_by or ()} - known):
            parts.append(f"clocks held by {', '.join(held)}")
        return "; ".join(parts)


def _groups(rows: Mapping[FigureKey, object] | Iterator[FigureKey]) -> list[str]:
    return list(dict.fromkeys(group_of(row.metric) or "" for row in rows))


def _slower_nodes(rows: Mapping[FigureKey, Mapping[str, Reading]], group: str, smallest: float) -> frozenset[str]:
    """The slower of two groups of nodes, by the mean over the group's rows; empty if the nodes are one group."""
    deviations: dict[str, list[float]] = {}
    for row, units in rows.items():
        if group_of(row.metric) == group:
            centre = median(reading.value for reading in units.values())
            for node, reading in units.items():
                deviations.setdefault(node, []).append(reading.value - centre)
    means = {node: fmean(values) for node, values in deviations.items()}
    return lower_group(means, max(4, len(means) // _MIN_SHARE), smallest)


def _fraction_between(rows: Sequence[Mapping[str, Reading]], slower: frozenset[str]) -> float:
    """Speed of the slower group over that of the other, less 1: the mean over rows."""
    differences = []
    for units in rows:
        sides = [[reading.value for node, reading in units.items() if (node in slower) is low] for low in (True, False)]
        if all(sides):
            differences.append(fmean(sides[0]) - fmean(sides[1]))
    return as_fraction(fmean(differences))


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _reading(row: FigureKey, runs: Sequence[tuple[float, ...]]) -> Reading:
    """The median attempt of each run."""
    logs = [[METRICS[row.metric].sign * math.log(value) for value in medians] for medians in runs]
    variances = [_SE_OF_MEDIAN**2 * variance_of(attempts) / len(attempts) for attempts in logs if len(attempts) > 1]
    return Reading(tuple(median(attempts) for attempts in logs), fmean(variances) / len(logs) if variances else 0.0)
