"""Runs by node, and the nodes of one kind, which may be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pybench.core.keys import differing, point_difference
from pybench.core.measurements import grouped
from pybench.fleet.values import NodeRun

_NODES_SUITE = "node_check"
"""The shipped suite that measures every GPU and link of a node."""


def identify(runs: Sequence[NodeRun]) -> tuple[list[NodeRun], dict[str, str], list[str]]:
    """Keep each run once; refuse a name of two machines and a machine of two names.

    Returns runs of known nodes; nodes without such a run, each with the reason; and notes.
    """
    known, refused, notes = list[NodeRun](), dict[str, str](), list[str]()
    by_node: dict[str, dict[tuple[str, str], NodeRun]] = {}
    for run in runs:
        kept, key = by_node.setdefault(run.node, {}), (run.figures.run_id, run.figures.created_utc)
        if key not in kept:
            kept[key] = run
        else:
            notes.append(f"{run.node}: run {run.figures.run_id} was given twice; it counts once")
    owners: dict[str, str] = {}
    for node, of_node in by_node.items():
        first, *others = of_node.values()
        # One GPU may have been replaced, not all of them.
        if stranger := next(
            (run for run in others if run.uuids != first.uuids and {*run.uuids}.isdisjoint(first.uuids)), None
        ):
            one, other = ((run.uuids or ("a CPU",))[0] for run in (first, stranger))
            refused[node] = f"two machines have this name ({one} and {other}); give each with NODE=PATH"
            continue
        uuids = dict.fromkeys(uuid for run in of_node.values() for uuid in run.uuids)
        if twin := next((owners[uuid] for uuid in uuids if uuid in owners), None):
            refused[node] = f"has the GPUs of {twin}: one machine under two names; give its runs one name"
            continue
        owners.update(dict.fromkeys(uuids, node))
        known += of_node.values()
    return known, refused, notes


def suite_to_judge(runs: Sequence[NodeRun]) -> str:
    """``node_check`` where half of the nodes have it, else the suite of most nodes; empty without any run."""
    counts = Counter(suite for suite, _ in sorted({(run.figures.suite, run.node) for run in runs}))
    if counts and 2 * counts[_NODES_SUITE] >= len({run.node for run in runs}):
        return _NODES_SUITE
    return counts.most_common(1)[0][0] if counts else ""


@dataclass(frozen=True)
class Alike:
    """Runs that are compared; ``unlike`` nodes with the difference; ``wanted`` are allowed differences."""

    runs: tuple[NodeRun, ...] = ()
    unlike: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()


def alike(runs: Sequence[NodeRun], across: Collection[str] = ()) -> Alike:
    """Keep the largest number of nodes that agree in every key and in the settings of each point."""
    if not runs:
        return Alike()
    usual = _usual_run(runs, across)
    differences = [(run, differing(usual.figures, run.figures, across)) for run in runs]
    same = [run for run, texts in differences if not texts]
    measured = {run.node for run in same}
    unlike = {run.node: "; ".join(texts) for run, texts in differences if run.node not in measured}
    notes = [
        f"{run.node}: run {run.figures.run_id} is left out: {'; '.join(texts)}"
        for run, texts in differences
        if texts and run.node in measured
    ]
    kept, unlike_points = _of_equal_settings(same, across)
    wanted = dict.fromkeys(text for run in same for text in differing(usual.figures, run.figures))
    return Alike(tuple(kept), unlike, (*notes, *unlike_points), tuple(wanted))


def _usual_run(runs: Sequence[NodeRun], across: Collection[str]) -> NodeRun:
    """The first run with which the most nodes agree, of those with a figure if there are any."""
    nodes: dict[tuple[tuple[str, str], ...], set[str]] = {}
    examples: dict[tuple[tuple[str, str], ...], NodeRun] = {}
    for run in [run for run in runs if run.figures.is_measured] or runs:
        keys = tuple(sorted(run.figures.keys.items()))
        examples.setdefault(keys, run)
        nodes.setdefault(keys, set()).add(run.node)
    agreeing = {
        keys: {
            node
            for other, names in nodes.items()
            if other == keys or not differing(run.figures, examples[other].figures, across)
            for node in names
        }
        for keys, run in examples.items()
    }
    return examples[max(agreeing, key=lambda keys: len(agreeing[keys]))]


def _of_equal_settings(runs: Sequence[NodeRun], across: Collection[str]) -> tuple[list[NodeRun], list[str]]:
    """Leave out points that were measured with other settings than on most nodes."""
    by_id = grouped((point.id, point) for run in runs for point in run.figures.points)
    usual = {}
    for name, points in by_id.items():
        digests = Counter(point.digest for point in points if point.digest is not None).most_common(1)
        usual[name] = next((point for point in points if digests and point.digest == digests[0][0]), points[0])
    kept, notes = [], []
    for run in runs:
        left_out = {
            point.id: text
            for point in run.figures.points
            if point.medians and usual[point.id].digest != point.digest
            if (text := point_difference(usual[point.id], point, across)) is not None
        }
        if left_out:
            rest = tuple(point for point in run.figures.points if point.id not in left_out)
            gpus = {row: units for row, units in run.gpus.items() if row.point_id not in left_out}
            run = replace(run, figures=replace(run.figures, points=rest), gpus=gpus)  # noqa: PLW2901 - without them
        kept.append(run)
        notes += [f"{run.node}: {name} is not compared: {text}" for name, text in left_out.items()]
    return kept, notes
