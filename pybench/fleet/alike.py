"""Which nodes may be compared: those that agree with most others in every key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pybench.core.keys import differing, point_difference
from pybench.fleet.values import NodeRun
from pybench.model.figures import PointFigures


@dataclass(frozen=True)
class Alike:
    """Runs that are compared, and why the others' nodes are not; ``wanted`` are differences that are allowed."""

    runs: tuple[NodeRun, ...]
    unlike: Mapping[str, str]
    notes: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()


def alike(runs: Sequence[NodeRun], across: Collection[str] = ()) -> Alike:
    """Keep the largest number of nodes that agree in every key and in the settings of each point."""
    usual = _usual(runs, across)
    differences = [(one, differing(usual.figures, one.figures, across)) for one in runs]
    same = [one for one, texts in differences if not texts]
    measured = {one.node for one in same}
    unlike = {one.node: "; ".join(texts) for one, texts in differences if one.node not in measured}
    notes = [
        f"{one.node}: run {one.figures.run_id} is left out: {'; '.join(texts)}"
        for one, texts in differences
        if texts and one.node in measured
    ]
    kept, otherwise = _of_equal_settings(same, across)
    wanted = dict.fromkeys(text for one in same for text in differing(usual.figures, one.figures))
    return Alike(tuple(kept), unlike, (*notes, *otherwise), tuple(wanted))


def _usual(runs: Sequence[NodeRun], across: Collection[str]) -> NodeRun:
    """A run with which the most nodes agree; the first such, of those with a figure if there are any."""
    measured = [run for run in runs if run.figures.is_measured] or runs
    return max(measured, key=lambda run: len({one.node for one in runs if _agree(run, one, across)}))


def _agree(one: NodeRun, other: NodeRun, across: Collection[str]) -> bool:
    return one.figures.keys == other.figures.keys or not differing(one.figures, other.figures, across)


def _of_equal_settings(runs: Sequence[NodeRun], across: Collection[str]) -> tuple[list[NodeRun], list[str]]:
    """Leave out points that were measured with other settings than on most nodes."""
    usual = {name: _usual_point(name, runs) for name in {point.id for one in runs for point in one.figures.points}}
    kept, notes = [], []
    for one in runs:
        apart = {p.id: text for p in one.figures.points if (text := _apart(usual[p.id], p, across)) is not None}
        points = tuple(point for point in one.figures.points if point.id not in apart)
        gpus = {row: units for row, units in one.gpus.items() if row.point_id not in apart}
        kept.append(replace(one, figures=replace(one.figures, points=points), gpus=gpus) if apart else one)
        notes += [f"{one.node}: {name} is not compared: {text}" for name, text in apart.items()]
    return kept, notes


def _usual_point(name: str, runs: Sequence[NodeRun]) -> PointFigures:
    points = [point for one in runs for point in one.figures.points if point.id == name]
    digests = Counter(point.digest for point in points if point.digest is not None)
    usual = digests.most_common(1)[0][0] if digests else None
    return next((point for point in points if point.digest == usual), points[0])


def _apart(usual: PointFigures, point: PointFigures, across: Collection[str]) -> str | None:
    """Of a point that was measured; one that was not has no settings."""
    return point_difference(usual, point, across) if point.medians and usual.digest != point.digest else None
