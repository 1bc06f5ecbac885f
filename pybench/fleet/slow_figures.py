"""Figures of a fleet that stand as slow, as evidence: a node as a whole or one GPU of it, and how it stood."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median

from pybench.core.statistics.false_discovery import discoveries
from pybench.core.statistics.interval import as_fraction
from pybench.core.statistics.spread import variance_of
from pybench.fleet.figures import MIN_UNITS, Distance, Figures, Reading
from pybench.fleet.groups import certain_fraction, group_of
from pybench.fleet.values import Evidence, GpuOfNode, GroupSpread, NodeRun
from pybench.model.change import SmallestEffects
from pybench.model.figures import Row
from pybench.model.gpu_state import GpuState
from pybench.model.workloads.registry import METRICS

# Standard error of a median over that of a mean, of normal values.
_OF_MEDIAN = math.sqrt(math.pi / 2)
_LEAST_CLOCK = 0.01
_LEAST_CELSIUS = 5.0
_NODE = ""
_LEAST_LEFT = 8
"""Fewer nodes know no better how far nodes scatter than all of them, values far off pulled in."""


@dataclass(frozen=True)
class SlowFigures:
    """The figures of nodes that are alike, and what of them stands as slow."""

    runs: Sequence[NodeRun]
    effects: SmallestEffects
    apart: frozenset[str] = frozenset()
    gpus_apart: frozenset[GpuOfNode] = frozenset()

    @cached_property
    def nodes(self) -> Figures[str]:
        """The figures of whole nodes."""
        found: dict[Row, dict[str, list[tuple[float, ...]]]] = {}
        for one in self.runs:
            for point in one.figures.points:
                for metric, medians in point.medians.items():
                    if group_of(metric) is not None and point.is_alone and min(medians) > 0:
                        found.setdefault(Row(point.id, metric), {}).setdefault(one.node, []).append(medians)
        rows = {row: {node: _reading(row, own) for node, own in units.items()} for row, units in found.items()}
        return Figures(rows, self.apart)

    @cached_property
    def gpus(self) -> Figures[GpuOfNode]:
        """The figures of single GPUs, where the runs' folders have them and nodes have several."""
        found: dict[Row, dict[GpuOfNode, list[tuple[float, ...]]]] = {}
        for one in self.runs:
            alone = {point.id for point in one.figures.points if point.is_alone}
            for row, units in one.gpus.items():
                if row.point_id in alone and len(units) > 1:
                    for uuid, medians in units.items():
                        if min(medians) > 0:
                            found.setdefault(row, {}).setdefault(GpuOfNode(one.node, uuid), []).append(medians)
        rows = {row: {unit: _reading(row, own) for unit, own in units.items()} for row, units in found.items()}
        return Figures(rows, self.gpus_apart)

    @property
    def spreads(self) -> Iterator[GroupSpread]:
        """How far nodes scatter in each group of figures."""
        for group in dict.fromkeys(group_of(row.metric) or "" for row in self.nodes.judged):
            num = max(len(units) for row, units in self.nodes.judged.items() if group_of(row.metric) == group)
            yield GroupSpread(
                name=group,
                num_nodes=num,
                spread_fraction=self.nodes.spread(group),
                detectable_fraction=self.nodes.detectable(group),
                gpu_fraction=self.gpus.detectable(group) if self.gpus.has(group) else None,
            )

    def evidence(self) -> dict[str, list[Evidence]]:
        """What stands among all nodes, GPUs and groups, by node.

        Nodes that stand are no example: the others are judged again without them, so that one does not hide another,
        where enough nodes are left.
        """
        slow = frozenset(unit.node for unit, _ in self._stand())
        if not slow or len({one.node for one in self.runs} - slow) < _LEAST_LEFT:
            return self.standing()
        gpus = frozenset(unit for units in self.gpus.rows.values() for unit in units if unit.node in slow)
        return replace(self, apart=slow, gpus_apart=gpus).standing()

    def standing(self) -> dict[str, list[Evidence]]:
        """Evidence of what stands, by node."""
        stand = self._stand()
        found: dict[str, list[Evidence]] = {}
        for node, group in self.nodes.probabilities:
            units = [unit for unit, own in stand if unit.node == node and own == group]
            found.setdefault(node, []).extend(self._of_group(node, group, units))
        return {node: own for node, own in found.items() if own}

    def _stand(self) -> list[tuple[GpuOfNode, str]]:
        """In the order of the runs."""
        nodes, gpus = self.nodes.probabilities, self.gpus.probabilities
        whole = {(GpuOfNode(node, _NODE), group): p for (node, group), p in nodes.items()}
        every = {**whole, **gpus}
        stand = discoveries(every)
        return [one for one in every if one in stand]

    def of_two(self) -> dict[str, list[Evidence]]:
        """Of two nodes: the slower one where they are farther apart than GPUs of one node may be.

        Neither is the usual one, so that no distance is certain: a second run decides.
        """
        found: dict[str, list[Evidence]] = {}
        for row, units in self.nodes.rows.items():
            if len(units) + 1 == MIN_UNITS:
                (slow, low), (_, high) = sorted(units.items(), key=lambda one: one[1].value)
                distance = Distance(low.value - high.value, 1.0, tuple(run - high.value for run in low.runs))
                if self._is_certain(row, distance):
                    one = replace(self._evidence(slow, row, low, distance), is_certain=False)
                    found.setdefault(slow, []).append(one)
        return found

    def _of_group(self, node: str, group: str, stand: Sequence[GpuOfNode]) -> Iterator[Evidence]:
        """Single GPUs where most others of the node are as the fleet's are; else the node."""
        slow = [unit for unit in stand if unit.uuid and self._is_large(*self.gpus.lowest(unit, group))]
        others = [unit for unit in self._gpus_of(node, group) if unit not in slow]
        if slow and len(others) >= len(slow):
            for unit in slow:
                row, distance = self.gpus.lowest(unit, group)
                yield self._evidence(node, row, self.gpus.rows[row][unit], distance, unit.uuid)
            return
        row, distance = self.nodes.lowest(node, group)
        if (slow or GpuOfNode(node, _NODE) in stand) and self._is_large(row, distance):
            yield self._evidence(node, row, self.nodes.rows[row][node], distance)

    def _gpus_of(self, node: str, group: str) -> list[GpuOfNode]:
        rows = [units for row, units in self.gpus.judged.items() if group_of(row.metric) == group]
        return list(dict.fromkeys(unit for units in rows for unit in units if unit.node == node))

    def _is_large(self, row: Row, distance: Distance) -> bool:
        return distance.deviation <= -self._smallest(row)

    def _is_certain(self, row: Row, distance: Distance) -> bool:
        on_gpu = bool(self.runs and self.runs[0].uuids)
        return as_fraction(distance.deviation) <= -certain_fraction(row.metric, on_gpu=on_gpu)

    def _smallest(self, row: Row) -> float:
        return math.log1p(self.effects.of(row.metric))

    def _evidence(self, node: str, row: Row, reading: Reading, distance: Distance, uuid: str | None = None) -> Evidence:
        sign = METRICS[row.metric].sign
        return Evidence(
            group=group_of(row.metric) or row.metric,
            text="; ".join(filter(None, ("" if uuid else self._how_many(node, row), self._stood(node, row, uuid)))),
            gpu=None if uuid is None else self._gpu_name(node, uuid),
            fraction=as_fraction(distance.deviation),
            p=distance.p,
            row=row,
            value=1 + as_fraction(sign * reading.value),
            usual=1 + as_fraction(sign * (reading.value - distance.deviation)),
            unit=METRICS[row.metric].unit,
            num_separate=sum(value <= -self._smallest(row) for value in distance.by_run),
            num_measured=len(distance.by_run),
            is_certain=self._is_certain(row, distance),
        )

    def _how_many(self, node: str, row: Row) -> str:
        """How many of the node's GPUs are slow."""
        units = self.gpus.distances.get(row, {})
        own = [distance for unit, distance in units.items() if unit.node == node]
        low = sum(self._is_large(row, distance) for distance in own)
        return f"{low} of its {len(own)} GPUs" if own else ""

    def _gpu_name(self, node: str, uuid: str) -> str:
        index = next((one.indices[uuid] for one in self.runs if one.node == node and uuid in one.indices), None)
        return uuid if index is None else f"GPU {index} ({uuid})"

    def _stood(self, node: str, row: Row, uuid: str | None) -> str:
        """Clock, temperature and what held clocks, where they are not those of the other nodes."""
        own = [state for state in self._states(row, node) if uuid in {None, state.uuid}]
        others = [state for name in self.nodes.rows.get(row, ()) if name != node for state in self._states(row, name)]
        return conditions_apart(own, others)

    def _states(self, row: Row, node: str) -> list[GpuState]:
        return [state for one in self.runs if one.node == node for state in one.states.get(row.point_id, ())]


def conditions_apart(own: Sequence[GpuState], others: Sequence[GpuState]) -> str:
    """How GPUs stood, where others did not: clock from 1 % on, temperature from 5 °C on, what held clocks."""
    parts = []
    clock, usual = _median([one.sm_clock_hz for one in own]), _median([one.sm_clock_hz for one in others])
    if clock and usual and abs(clock / usual - 1) >= _LEAST_CLOCK:
        parts.append(f"SM clock {clock / 1e6:,.0f} MHz (others {usual / 1e6:,.0f})")
    warm = max((one.temperature_c for one in own if one.temperature_c is not None), default=None)
    usual_c = _median([one.temperature_c for one in others])
    if warm is not None and usual_c is not None and abs(warm - usual_c) >= _LEAST_CELSIUS:
        parts.append(f"{warm:.0f} °C (others {usual_c:.0f})")
    known = {word for one in others for word in one.held_by or ()}
    if held := sorted({word for one in own for word in one.held_by or ()} - known):
        parts.append(f"clocks held by {', '.join(held)}")
    return "; ".join(parts)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _reading(row: Row, runs: Sequence[tuple[float, ...]]) -> Reading:
    """The median attempt of each run; the error is that of their mean."""
    logs = [[METRICS[row.metric].sign * math.log(value) for value in own] for own in runs]
    errors = [_OF_MEDIAN**2 * variance_of(own) / len(own) for own in logs if len(own) > 1]
    error = math.sqrt(fmean(errors) / len(logs)) if errors else 0.0
    return Reading(tuple(median(own) for own in logs), error)
