"""The state of every node of a fleet, from its figures, its pairs, its arrivals and its own checks.

A node is bad when two separate measurements show it (two runs, two pairs, a run and pairs), when one shows it by more
than GPUs of one node may differ, or when a check of its own failed. What a single run shows makes it suspect, as does
any distance of a single run between two nodes. A node is healthy only if it has every group of figures that half of the
others have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pybench.fleet.alike import Alike, alike
from pybench.fleet.barriers import late_nodes, too_few
from pybench.fleet.figures import MIN_UNITS
from pybench.fleet.groups import group_of
from pybench.fleet.identity import identified, usual_suite
from pybench.fleet.pairs import SlowPairs, slow_pairs
from pybench.fleet.slow_figures import SlowFigures
from pybench.fleet.values import Barriers, Evidence, FleetLink, FleetNode, FleetResult, NodeRun, NodeState, PairFigure
from pybench.model.change import SmallestEffects
from pybench.model.figures import NOT_ALONE, PointFigures, key_values
from pybench.model.plural import plural

BY_IMPORTANCE: tuple[NodeState, ...] = ("bad", "not measured", "suspect", "not compared", "healthy")
_ENOUGH = 2
"""Separate measurements that make a node bad."""


def judge_fleet(
    runs: Sequence[NodeRun],
    *,
    pairs: Sequence[PairFigure] = (),
    barriers: Barriers | None = None,
    expected: Collection[str] = (),
    refused: Mapping[str, str] | None = None,
    across: Collection[str] = (),
    effects: SmallestEffects | None = None,
    notes: Collection[str] = (),
) -> FleetResult:
    """Judge every node that has a run, met another one, or is ``expected``.

    ``refused`` are nodes of which a run could not be read, each with the reason, ``across`` keys that may differ, and
    ``notes`` what was left out before. One suite is judged (:func:`~pybench.fleet.identity.usual_suite`).
    """
    effects = effects or SmallestEffects()
    suite = usual_suite(runs)
    own = identified([one for one in runs if one.figures.suite == suite])
    judged = {one.node for one in own.runs}
    refused = refused or {}
    fleet = _Fleet(
        runs=own.runs,
        alike=alike(own.runs, across) if own.runs else Alike((), {}),
        refused={**_of_other_suites(runs, suite), **refused, **own.refused},
        expected=expected,
        effects=effects,
        pairs=slow_pairs(pairs, effects),
        late=late_nodes(barriers, effects) if barriers else {},
    )
    met = [name for pair in pairs for name in pair.nodes]
    arrived = [name for one in barriers.arrivals_s for name in one] if barriers else []
    names = sorted({*(one.node for one in runs), *met, *arrived, *expected, *fleet.refused})
    nodes = sorted((fleet.node(name) for name in names), key=lambda node: BY_IMPORTANCE.index(node.state))
    return FleetResult(
        suite=suite,
        state=overall(nodes, fleet.pairs.links),
        nodes=tuple(nodes),
        links=fleet.pairs.links,
        groups=tuple(fleet.figures.spreads),
        notes=(
            *notes,
            *(f"not read: {reason}" for name, reason in refused.items() if name in judged),
            *_apart(runs, suite, judged),
            *own.notes,
            *fleet.alike.notes,
            *fleet.notes(),
            *fleet.pairs.notes,
            *(too_few(barriers) if barriers else ()),
        ),
        wanted=fleet.alike.wanted,
        keys=_agreed(fleet.alike.runs),
        gpus=tuple(dict.fromkeys(_gpus(one) for one in fleet.alike.runs)),
        num_compared=len(fleet.alike.runs),
        num_pairs=len(pairs),
        num_barriers=len(barriers.arrivals_s) if barriers else 0,
        effects=effects,
    )


def overall(nodes: Sequence[FleetNode], links: Sequence[FleetLink] = ()) -> NodeState:
    """The worst state; of no node ``not measured``."""
    found: set[NodeState] = {node.state for node in nodes} | {link.state for link in links}
    return next((state for state in BY_IMPORTANCE if state in found), "not measured")


def _agreed(runs: Sequence[NodeRun]) -> dict[str, str]:
    """Keys that have one value in all runs."""
    common = set.intersection(*(set(one.figures.keys.items()) for one in runs)) if runs else set()
    return dict(sorted(common))


def _gpus(run: NodeRun) -> tuple[str, ...]:
    """Names of its GPUs, one for each; none where none are recorded."""
    return tuple(map(str, key_values(run.figures.keys, "gpu")))


def _apart(runs: Sequence[NodeRun], suite: str, judged: Collection[str]) -> Iterator[str]:
    """Suites whose runs are not looked at, of nodes that are judged by another."""
    counts = Counter(one.figures.suite for one in runs if one.figures.suite != suite and one.node in judged)
    for other, number in sorted(counts.items()):
        yield f"{plural(number, 'run')} of {other}: not looked at; give runs of one suite to judge by them"


def _of_other_suites(runs: Sequence[NodeRun], suite: str) -> dict[str, str]:
    """Nodes that have runs of other suites, and perhaps none of this one."""
    return {
        one.node: f"its run is of the suite {one.figures.suite}, those of most nodes of {suite}"
        for one in runs
        if one.figures.suite != suite
    }


@dataclass(frozen=True, kw_only=True)
class _Fleet:
    runs: Sequence[NodeRun]
    alike: Alike
    refused: Mapping[str, str]
    expected: Collection[str]
    effects: SmallestEffects
    pairs: SlowPairs
    late: Mapping[str, Evidence]

    def node(self, name: str) -> FleetNode:
        """Its state, with the evidence or the reason."""
        runs = [one for one in self.runs if one.node == name]
        found = tuple(self._evidence(name, runs))
        state, reason = self._state(name, runs, found)
        return FleetNode(name=name, state=state, num_runs=len(runs), evidence=found, reason=reason)

    def notes(self) -> Iterator[str]:
        """What so few nodes cannot show."""
        num = len({one.node for one in self.alike.runs})
        if num == 1:
            yield "one node has no others to be compared with; its own checks are all that is judged"
        elif num < MIN_UNITS and num:
            yield "two nodes: neither is the usual one; the slower is suspect where they are far apart"

    @cached_property
    def figures(self) -> SlowFigures:
        """Of the nodes that are compared."""
        return SlowFigures(self.alike.runs, self.effects)

    @cached_property
    def _slow(self) -> Mapping[str, Sequence[Evidence]]:
        return self.figures.evidence() or self.figures.of_two()

    @cached_property
    def _groups(self) -> dict[str, set[str]]:
        """Groups of figures of each compared node; what no other node has shows nothing."""
        rows = self.figures.nodes.rows
        found: dict[str, set[str]] = {node: set() for units in rows.values() for node in units}
        for row, units in rows.items():
            for node in units if len(units) > 1 or len(found) == 1 else ():
                found[node].add(group_of(row.metric) or "")
        return found

    def _evidence(self, name: str, runs: Sequence[NodeRun]) -> Iterator[Evidence]:
        yield from (Evidence(text=text, is_certain=True) for one in runs for text in dict.fromkeys(one.faults))
        yield from self._slow.get(name, ())
        yield from self.pairs.evidence.get(name, ())
        if name in self.late:
            yield self.late[name]
        yield from (Evidence(text=text) for one in runs for text in _failed(one, self._measured_points))
        yield from (Evidence(text=text) for one in runs for text in dict.fromkeys(one.warnings))

    @cached_property
    def _measured_points(self) -> set[str]:
        """Points that half of the runs, or more, have measured."""
        names = [point.id for one in self.alike.runs for point in one.figures.points if point.medians]
        return {name for name in names if 2 * names.count(name) >= len(self.alike.runs)}

    def _state(self, name: str, runs: Sequence[NodeRun], found: Sequence[Evidence]) -> tuple[NodeState, str]:
        if any(one.is_certain for one in found) or _num_separate(found) >= _ENOUGH:
            return "bad", ""
        if found:
            return "suspect", ""
        if name in self.alike.unlike:
            return "not compared", f"unlike the compared nodes in {self.alike.unlike[name]}"
        if not self.runs and name not in self.refused and name not in self.expected:
            return "not compared", "no run was given; what nodes do together shows none of them as healthy"
        if absent := self._absent(name, runs):
            return "not measured", absent
        few = {1: "no other node of its kind", 2: "not far from the only other node of its kind"}.get(
            len(self._groups), ""
        )
        return ("not compared" if few else "healthy"), few

    def _absent(self, name: str, runs: Sequence[NodeRun]) -> str:
        """Why a group of figures is absent that half of the nodes have; empty where none is."""
        if not runs:
            return self.refused.get(name, "no run of it was given")
        own = self._groups.get(name, set())
        groups = [group for groups in self._groups.values() for group in groups]
        lacking = [g for g in dict.fromkeys(groups) if 2 * groups.count(g) >= len(self._groups) and g not in own]
        if own and not lacking:
            return ""
        points = [point for one in runs for point in one.figures.points]
        reasons = dict.fromkeys(reason for point in points if (reason := _absence(point)))
        alone = "no figure that another node has, too" if name in self._groups else "no figure"
        what = f"no figure of {', '.join(lacking)}" if lacking and own else alone
        return ": ".join((what, *[*reasons][:1]))


def _absence(point: PointFigures) -> str:
    return (NOT_ALONE if not point.is_alone else "") if point.medians else f"{point.id}: {point.absence}"


def _failed(run: NodeRun, measured: Collection[str]) -> Iterator[str]:
    """Points whose worker broke here and not on most nodes."""
    for point in run.figures.points:
        if not point.medians and point.num_failed and point.id in measured:
            yield f"{point.id} failed: {point.absence}"


def _num_separate(found: Sequence[Evidence]) -> int:
    """Separate measurements: runs count once, whatever they show; so do pairs and barriers."""
    by_kind: dict[str, int] = {}
    for one in found:
        kind = one.group if one.group in {"pairs", "barriers"} else "runs"
        by_kind[kind] = max(by_kind.get(kind, 0), one.num_separate)
    return sum(by_kind.values())
