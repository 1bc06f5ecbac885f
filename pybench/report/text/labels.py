"""Short names of points for people: axes that all points share are stated once, axes that vary name the point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pybench.core.measurements import grouped
from pybench.core.plan import point_id
from pybench.model.figures import PointFigures, RunFigures
from pybench.model.results import PointResult
from pybench.model.suite import AxisValue, Point
from pybench.model.text import amount_text, plural

_WORDS = {
    "tensor_parallel": "TP {}",
    "pipeline_parallel": "PP {}",
    "data_parallel": "DP {}",
    "context_parallel": "CP {}",
    "batch_size": "batch {}",
    "concurrency": "{} at a time",
    "request_rate_per_s": "{:g} requests/s",
}

Named = Point | PointResult | PointFigures
"""A point of any kind: planned, measured, compared."""


def labels(points: Sequence[Named]) -> dict[str, str]:
    """Label of each point by its id: the benchmark and the axes that vary, e.g. ``decode[tensor_parallel=2]``."""
    common = axes_by_benchmark(points)
    return {point.id: point_id(point.benchmark, _without(point.axes, common[point.benchmark])) for point in points}


def short_labels(points: Sequence[Named], *, with_benchmark: bool) -> dict[str, str]:
    """Label of each point by its id in words for a narrow table, e.g. ``TP 2, batch 16``; the id where two would agree.

    Only axes that vary within a benchmark are named; ``with_benchmark`` adds its name in front.
    """
    common = axes_by_benchmark(points)
    by_id = {}
    for point in points:
        words = ", ".join(axis_text(*axis) for axis in _without(point.axes, common[point.benchmark]).items())
        by_id[point.id] = f"{point.benchmark} {words}".strip() if with_benchmark else words or point.benchmark
    counts = Counter(by_id.values())
    return {name: label if counts[label] == 1 else name for name, label in by_id.items()}


def labels_of_runs(runs: Iterable[RunFigures]) -> dict[str, str]:
    """:func:`short_labels` of the points of several runs, of which the last with an id counts.

    The benchmark stands in front where there are several.
    """
    last = list({point.id: point for run in runs for point in run.points}.values())
    return short_labels(last, with_benchmark=len({point.benchmark for point in last}) > 1)


def common_axes(points: Sequence[Named]) -> tuple[str, ...]:
    """What :func:`labels` leaves out, once for each benchmark, e.g. ``decode[backend=torch]``."""
    return tuple(point_id(benchmark, axes) for benchmark, axes in axes_by_benchmark(points).items() if axes)


def shared_axes(points: Sequence[Named]) -> dict[str, AxisValue]:
    """Axes with one value in all of ``points``, with that value."""
    first = points[0].axes if points else {}
    return {n: v for n, v in first.items() if all(n in p.axes and p.axes[n] == v for p in points)}


def verdict_words(verdict: str) -> str:
    """As a reader sees it: ``no expectation``."""
    return verdict.replace("_", " ")


def joined(names: Sequence[str]) -> str:
    """In a sentence: with semicolons where a name has a comma."""
    return ("; " if any(", " in name for name in names) else ", ").join(names)


def axis_text(name: str, value: AxisValue) -> str:
    """One axis value in words: ``TP 2``, ``16 MiB``, ``vllm``, ``no sequence_parallel``."""
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if isinstance(value, str):
        return value or f"no {name}"
    if name == "gpus":
        return plural(int(value), "GPU")
    if name.endswith("_bytes"):
        return amount_text(value)
    return _WORDS.get(name, f"{name} {{}}").format(value)


def axes_by_benchmark(points: Sequence[Named]) -> dict[str, dict[str, AxisValue]]:
    """Axes that all points of a benchmark share, by benchmark."""
    siblings = grouped((point.benchmark, point) for point in points)
    return {benchmark: shared_axes(group) for benchmark, group in siblings.items()}


def _without(axes: dict[str, AxisValue], common: dict[str, AxisValue]) -> dict[str, AxisValue]:
    return {name: value for name, value in axes.items() if name not in common}
