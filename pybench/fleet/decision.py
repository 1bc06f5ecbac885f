"""The state of every node of a fleet, from its figures, its pairs and its own checks.

A node is bad for one of three reasons: a failed check, one run slower than GPUs of one node may differ, or two runs (or
pairs) slower by :func:`~pybench.fleet.figures.bad_fraction`. Healthy nodes of one kind differ by up to that fraction,
and the second run confirms the measurement. A smaller difference makes a node suspect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pybench.core.measurements import grouped
from pybench.core.statistics.units import MIN_UNITS
from pybench.fleet.alike import Alike, alike, identify, suite_to_judge
from pybench.fleet.figures import SlowFigures, group_of
from pybench.fleet.pairs import SlowPairs, slow_pairs
from pybench.fleet.values import BY_IMPORTANCE, FleetNode, FleetResult, NodeRun, NodeState, PairFigure, Symptom
from pybench.model.figures import NOT_ALONE, SmallestEffects, key_values
from pybench.model.text import plural


def judge_fleet(
    runs: Sequence[NodeRun],
    *,
    pairs: Sequence[PairFigure] = (),
    expected: Collection[str] = (),
    refused: Mapping[str, str] | None = None,
    across: Collection[str] = (),
    effects: SmallestEffects | None = None,
    notes: Collection[str] = (),
) -> FleetResult:
    """Judge every node that has a run, is in a pair, or is ``expected``.

    ``refused`` are nodes whose run is unreadable, with the reason; ``across`` are keys that may differ; ``notes`` are
    from the reading of the runs. One suite is judged (:func:`~pybench.fleet.alike.suite_to_judge`).
    """
    effects, refused, suite = effects or SmallestEffects(), refused or {}, suite_to_judge(runs)
    known, ambiguous, doubles = identify([run for run in runs if run.figures.suite == suite])
    judged = {run.node for run in known}
    others = [run for run in runs if run.figures.suite != suite]
    fleet = _Fleet(
        runs=known,
        alike=alike(known, across),
        refused={
            **{run.node: f"its run is of the suite {run.figures.suite}, most nodes have {suite}" for run in others},
            **refused,
            **ambiguous,
        },
        expected=expected,
        effects=effects,
        pairs=slow_pairs(pairs, effects),
    )
    names = {run.node for run in runs} | {name for pair in pairs for name in pair.nodes} | {*expected, *fleet.refused}
    nodes = sorted(map(fleet.node, sorted(names)), key=lambda node: BY_IMPORTANCE.index(node.state))
    compared = fleet.alike.runs
    states = {node.state for node in nodes} | {link.state for link in fleet.pairs.links}
    unjudged = Counter(run.figures.suite for run in others if run.node in judged)
    return FleetResult(
        suite=suite,
        state=next((state for state in BY_IMPORTANCE if state in states), "not measured"),
        nodes=tuple(nodes),
        links=fleet.pairs.links,
        groups=tuple(fleet.figures.spreads),
        notes=(
            *notes,
            *(f"not read: {reason}" for name, reason in refused.items() if name in judged),
            *(f"{plural(num, 'run')} of {name} not judged; give runs of one suite" for name, num in unjudged.items()),
            *doubles,
            *fleet.alike.notes,
            *fleet.pairs.notes,
        ),
        wanted=fleet.alike.wanted,
        keys=dict(sorted(set.intersection(*({*run.figures.keys.items()} for run in compared)))) if compared else {},
        gpus=tuple(dict.fromkeys(tuple(map(str, key_values(run.figures.keys, "gpu"))) for run in compared)),
        num_compared=len(compared),
        num_pairs=len(pairs),
        effects=effects,
    )


@dataclass(frozen=True, kw_only=True)
class _Fleet:
    """Everything that judges one node."""

    runs: Sequence[NodeRun]
    alike: Alike
    refused: Mapping[str, str]
    expected: Collection[str]
    effects: SmallestEffects
    pairs: SlowPairs

    def node(self, name: str) -> FleetNode:
        """A node with its state, and the symptoms or the reason."""
        runs = self._runs_by_node.get(name, [])
        symptoms = tuple(self._symptoms(name, runs))
        state, reason = self._state(name, runs, symptoms)
        return FleetNode(name=name, state=state, num_runs=len(runs), symptoms=symptoms, reason=reason)

    @cached_property
    def figures(self) -> SlowFigures:
        """Of the nodes that are compared."""
        return SlowFigures(self.alike.runs, self.effects)

    @cached_property
    def _runs_by_node(self) -> Mapping[str, list[NodeRun]]:
        return grouped((run.node, run) for run in self.runs)

    @cached_property
    def _groups(self) -> dict[str, set[str]]:
        """Groups of figures of each compared node; a figure of one node alone is not compared."""
        rows = self.figures.nodes.rows
        groups: dict[str, set[str]] = {node: set() for units in rows.values() for node in units}
        for row, units in rows.items():
            for node in units if len(units) > 1 or len(groups) == 1 else ():
                groups[node].add(group_of(row.metric) or "")
        return groups

    @cached_property
    def _usual_groups(self) -> list[str]:
        """Groups of figures that half of the compared nodes have."""
        counts = Counter(group for groups in self._groups.values() for group in sorted(groups))
        return [group for group, num in counts.items() if 2 * num >= len(self._groups)]

    @cached_property
    def _usual_points(self) -> set[str]:
        """Points that half of the compared runs have measured."""
        points = (point for run in self.alike.runs for point in run.figures.points)
        counts = Counter(point.id for point in points if point.medians)
        return {name for name, num in counts.items() if 2 * num >= len(self.alike.runs)}

    def _symptoms(self, name: str, runs: Sequence[NodeRun]) -> Iterator[Symptom]:
        yield from (Symptom(text=text, is_bad=True) for run in runs for text in dict.fromkeys(run.faults))
        yield from self.figures.symptoms.get(name, ())
        yield from self.pairs.symptoms.get(name, ())
        for run in runs:
            for point in run.figures.points:
                if not point.medians and point.num_failed and point.id in self._usual_points:
                    yield Symptom(text=f"{point.id} failed: {point.absence}")
            yield from (Symptom(text=text) for text in dict.fromkeys(run.warnings))

    def _state(self, name: str, runs: Sequence[NodeRun], symptoms: Sequence[Symptom]) -> tuple[NodeState, str]:
        if symptoms:
            return ("bad" if any(symptom.is_bad for symptom in symptoms) else "suspect"), ""
        if name in self.alike.unlike:
            return "not compared", f"unlike the compared nodes in {self.alike.unlike[name]}"
        if not self.runs and name not in self.refused and name not in self.expected:
            return "not compared", "no run was given; pairs alone show no node as healthy"
        if reason := self._absence(name, runs):
            return "not measured", reason
        if len(self._groups) < MIN_UNITS:
            return "not compared", f"{plural(len(self._groups), 'node')} of its kind; {MIN_UNITS} can be compared"
        return "healthy", ""

    def _absence(self, name: str, runs: Sequence[NodeRun]) -> str:
        """Reason for a missing group of figures that half of the nodes have; empty if no group is missing."""
        if not runs:
            return self.refused.get(name, "no run of it was given")
        groups = self._groups.get(name, set())
        absent = [group for group in self._usual_groups if group not in groups]
        if groups and not absent:
            return ""
        reasons = (
            f"{point.id}: {point.absence}" if not point.medians else NOT_ALONE
            for run in runs
            for point in run.figures.points
            if not point.medians or not point.is_alone
        )
        alone = "no figure that another node has, too" if name in self._groups else "no figure"
        what = f"no figure of {', '.join(absent)}" if absent and groups else alone
        return ": ".join((what, *[*dict.fromkeys(reasons)][:1]))
