"""One row for each measured point: its headline figure, what the suite expects of it, its energy, its verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pybench.core.loss_curve import METRIC as LOSS_GUARD
from pybench.core.measurements import grouped
from pybench.core.numbers import Scale, gate, plain, quantity, shared_scale, with_spread
from pybench.model.results import CheckResult, PointResult, Results
from pybench.model.text import plural
from pybench.model.workloads.registry import METRICS
from pybench.model.workloads.settings import AUTO
from pybench.model.workloads.train_rules import STRATEGIES
from pybench.report.run.flags import relevant
from pybench.report.run.headline import (
    NONE,
    Expectations,
    energy,
    energy_name,
    headline,
    headline_of,
    metric_text,
    requests_differ,
    speedup_text,
)
from pybench.report.table import Cell, Table
from pybench.report.text.change_words import metric_words
from pybench.report.text.labels import axes_by_benchmark, axis_text, shared_axes, short_labels

EVERY_POINT = "all"
"""Replaces a flag's letter where every row has the flag, so that no row repeats it."""
# A results.json may hold any value for a setting, also one without a hash.
_STAGED = tuple(name for name, strategy in STRATEGIES.items() if strategy.has_stages)


@dataclass(frozen=True)
class Group:
    """Benchmarks that one table shows: axes with one value in words as ``shared``, ``letters`` of flags."""

    benchmarks: tuple[str, ...]
    points: tuple[PointResult, ...]
    labels: dict[str, str]
    shared: tuple[str, ...]
    letters: dict[str, str]
    is_ranked: bool = False


def groups(results: Results) -> tuple[Group, ...]:
    """A group for each benchmark with ratios; the others together. Points that were not run are left out."""
    shown = [point for point in results.points if point.status not in {"skipped", "does_not_fit"}]
    scaled = {row.benchmark for row in results.scaling}
    names = tuple(dict.fromkeys(point.benchmark for point in shown))
    others = tuple(name for name in names if name not in scaled)
    members = (*((name,) for name in names if name in scaled), *((others,) if others else ()))
    return tuple(_group(benchmarks, shown) for benchmarks in members)


def _group(benchmarks: tuple[str, ...], shown: Sequence[PointResult], letters: dict[str, str] | None = None) -> Group:
    points = tuple(point for point in shown if point.benchmark in benchmarks)
    if letters is None:
        # A letter for each flag that matters, in the order of first use; none for what every measured point has.
        measured = [relevant(point) for point in points if point.status == "ok"]
        flags = dict.fromkeys(flag for point in points for flag in relevant(point))
        everywhere = {flag for flag in flags if len(measured) > 1 and all(flag in of_point for of_point in measured)}
        rest = [flag for flag in flags if flag not in everywhere]
        letters = {flag: chr(ord("a") + number) if number < 26 else flag for number, flag in enumerate(rest)}  # noqa: PLR2004
        letters |= dict.fromkeys(everywhere, EVERY_POINT)
    labels = short_labels(points, with_benchmark=len(benchmarks) > 1)
    # Trainings of several benchmarks on equally many GPUs: the fastest first, points without a figure last.
    names = {headline_of(point.metrics) for point in points} - {None}
    is_ranked = len(benchmarks) > 1 and names == {"tokens_per_s"} and len({point.num_gpus for point in points}) == 1
    shared = _shared(benchmarks, points)
    if is_ranked:
        points = tuple(sorted(points, key=lambda p: -figure.value if (figure := headline(p)) else math.inf))
    return Group(benchmarks, points, labels, shared, letters, is_ranked)


def parts(group: Group) -> tuple[Group, ...]:
    """Split by benchmark, or by the first axis of words that varies, such as the backend; whole if neither varies."""
    if len(group.benchmarks) > 1:
        return tuple(_group((name,), group.points, group.letters) for name in group.benchmarks)
    axes = {name: value for name, value in group.points[0].axes.items() if isinstance(value, str)}
    names = [name for name, value in axes.items() if any(point.axes.get(name) != value for point in group.points)]
    if not names:
        return (group,)
    split = grouped((point.axes[names[0]], point) for point in group.points)
    return tuple(_group(group.benchmarks, points, group.letters) for points in split.values())


def _shared(benchmarks: Sequence[str], points: Sequence[PointResult]) -> tuple[str, ...]:
    """Axes shared by all points, then by the points of each benchmark, then the attempts."""
    everywhere = shared_axes(points) if len(points) > 1 or len(benchmarks) == 1 else {}
    texts = [", ".join(axis_text(*axis) for axis in everywhere.items())]
    if len(benchmarks) > 1:
        of_each = {
            name: ", ".join(axis_text(*axis) for axis in axes.items() if axis[0] not in everywhere)
            for name, axes in axes_by_benchmark(points).items()
        }
        by_words = grouped((of_each[name], name) for name in benchmarks)
        texts += [f"{words}: {', '.join(names)}" for words, names in by_words.items() if words]
    attempts = {point.attempts for point in points if point.attempts}
    if attempts:
        least, most = min(attempts), max(attempts)
        many = plural(most, "attempt")
        texts.append(f"{many} each" if least == most else f"{least} to {many}")
    return tuple(text for text in texts if text)


def _millijoules(point: PointResult, metric: str) -> str:
    return plain(1000 * point.metrics[metric].value) if metric in point.metrics else NONE


@dataclass(frozen=True)
class _Secondary:
    """A column for points of one kind: the figure that their suite is about.

    One such point gives its table the column, in which other points show their figures too; with ``of_all`` every point
    must be of the kind. A narrow table leaves out columns that ``gives_way``.
    """

    head: str
    metric: str
    describes: str | Callable[[PointResult], bool]
    """The metric that points of the kind have, or a test."""
    text: Callable[[PointResult, str], str] = metric_text
    of_all: bool = False
    gives_way: bool = False

    def is_shown(self, points: Sequence[PointResult]) -> bool:
        """Whether a table of these points has the column."""
        kind = self.describes
        described = [point for point in points if (kind in point.metrics if isinstance(kind, str) else kind(point))]
        has_all = not self.of_all or len(described) == len(points)
        return has_all and any(self.metric in point.metrics for point in described)


_AUTO = "batch_size_per_gpu"
_DECODE, _PREFILL = "decode_energy_j_per_output_token", "prefill_energy_j_per_prompt_token"
_EVALUATION = "evaluation_overhead_fraction"
_SECONDARIES = (
    _Secondary("TTFT p99", "ttft_p99_s", requests_differ),
    _Secondary("TPOT p99", "tpot_p99_s", requests_differ),
    _Secondary("goodput", "goodput_requests_per_s", "goodput_requests_per_s"),
    _Secondary("switch", "switch_s", "turn_s"),
    _Secondary("of a turn", "switch_fraction", "turn_s"),
    _Secondary("evaluation", _EVALUATION, _EVALUATION),
    _Secondary("load", "load_bytes_per_s", "save_bytes_per_s"),
    _Secondary("size", "checkpoint_bytes", "save_bytes_per_s"),
    _Secondary("batch per GPU", _AUTO, lambda point: point.settings.get(_AUTO) == AUTO),
    _Secondary("waits", "stage_idle_fraction", lambda point: point.settings.get("strategy") in _STAGED, of_all=True),
    _Secondary("prefill mJ", _PREFILL, _DECODE, _millijoules, gives_way=True),
    _Secondary("decode mJ", _DECODE, _DECODE, _millijoules, gives_way=True),
    _Secondary("memory", "peak_memory_bytes", "tokens_per_s", gives_way=True),
)


def overviews(results: Results, group: Group) -> tuple[Table, Table, Table]:
    """The group's table: whole; without columns that give way; without any secondary figure and limit of energy."""
    scale = shared_scale([figure for point in group.points if (figure := headline(point))])
    energy_scale = shared_scale([joules for point in group.points if (joules := energy(point))])
    # Further metrics with a limit, except the guard on the loss.
    ids = {point.id: {headline_of(point.metrics), energy_name(point), LOSS_GUARD} for point in group.points}
    more = dict.fromkeys(row.metric for row in results.checks if row.metric not in ids.get(row.point_id, {row.metric}))
    shown = [column for column in _SECONDARIES if column.metric not in more and column.is_shown(group.points)]
    wanted = Expectations(results)
    speedups = [
        speedup_text(row.speedup, row.speedup_low, row.speedup_high)
        if (row := wanted.ratio(point))
        else "1 (baseline)" * (point.id in wanted.baselines) or NONE
        for point in group.points
    ]
    limits: list[tuple[str, ...]] = [_limit_cells(wanted, point, scale) for point in group.points]
    if all(speedup == NONE for speedup in speedups):  # limits of ratios alone would seem to be of the figures
        limits = [(NONE, of_figure) for _, of_figure in limits]
    limit_heads: tuple[str, ...] = ("expected", "allowed")
    if all(NONE in pair for pair in limits) and all(
        any(cell != NONE for cell in column) for column in zip(*limits, strict=True)
    ):
        limit_heads = ("limit",)  # No row has both.
        limits = [(max(pair, key=lambda cell: cell != NONE),) for pair in limits]
    rows = tuple(
        (
            group.labels[point.id],
            with_spread(headline(point), scale),
            speedup,
            *limit,
            *(_limited(point, metric, wanted.check(point, metric)) for metric in more),
            *(column.text(point, column.metric) for column in shown),
            _energy(point, wanted.check(point, energy_name(point)), energy_scale),
            wanted.verdict(point),
            " ".join(sorted({group.letters[flag] for flag in relevant(point)} - {EVERY_POINT})),
        )
        for point, speedup, limit in zip(group.points, speedups, limits, strict=True)
    )
    # The unit that all figures share, and whether they are per GPU; a checkpoint's figure is that of saving.
    names = {name for point in group.points if (name := headline_of(point.metrics))}
    unit = "figure" if scale is None else scale.unit
    if scale and names == {"save_bytes_per_s"}:
        unit = f"save {unit}"
    elif scale and all(name.endswith("_per_gpu") for name in names):
        unit = f"{unit} per GPU"
    of_energy = energy_scale.unit if energy_scale else "energy"
    secondary = (*map(metric_words, more), *(column.head for column in shown))
    heads = ("point", unit, "speedup", *limit_heads, *secondary, of_energy, "verdict", "flags")
    title = "points, the fastest first" if group.is_ranked else "points"
    title = group.benchmarks[0] if len(group.benchmarks) == 1 else title
    whole = Table(title, heads, rows).without_empty_columns()
    narrower = whole.without(column.head for column in shown if column.gives_way)
    return whole, narrower, narrower.without(secondary).without_notes()


def _limit_cells(wanted: Expectations, point: PointResult, scale: Scale | None) -> tuple[str, str]:
    """The limits of the point's ratio and of its headline figure."""
    row, figure = wanted.ratio(point), headline(point)
    lower = METRICS[row.metric].higher_is_better if row is not None and row.metric in METRICS else True
    of_ratio = gate(row.expected.minimum, row.expected.maximum, lower=lower) if row and row.expected else NONE
    check = wanted.check(point, headline_of(point.metrics))
    return of_ratio, _gate(check, scale or (shared_scale([figure]) if figure else None))


def _gate(check: CheckResult | None, scale: Scale | None) -> str:
    return NONE if check is None else gate(check.minimum, check.maximum, scale, lower=check.minimum is not None)


def _energy(point: PointResult, check: CheckResult | None, scale: Scale | None) -> str:
    """Joules, with their limit where there is room."""
    limit = _gate(check, scale)
    return Cell(with_spread(energy(point), scale), note="" if limit == NONE else f"({limit})")


def _limited(point: PointResult, metric: str, check: CheckResult | None) -> str:
    """A further metric with its limit."""
    limit = _gate(check, shared_scale([check.value]) if check and check.value else None)
    return f"{quantity(check.value)} ({limit})" if check and limit != NONE else quantity(point.metrics.get(metric))
