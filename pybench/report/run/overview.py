"""One row for each measured point: its headline figure, what the suite expects of it, its energy, its verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from pybench.core.loss_curve import METRIC as LOSS_GUARD
from pybench.core.numbers import ONE, Scale, gate, interval, limits, quantity, shared_scale, with_spread
from pybench.model.results import Estimate, PointResult, Results, ScalingResult
from pybench.model.text import plural
from pybench.model.workloads.registry import METRICS
from pybench.report.run.expectations import NONE, Expectations
from pybench.report.run.flags import relevant
from pybench.report.run.headline import energy, energy_name, headline, headline_name
from pybench.report.run.secondary import secondaries
from pybench.report.table import Table
from pybench.report.text.change_words import metric_words
from pybench.report.text.labels import axis_text, shared_axes, short_labels

EVERY_POINT = "all"
"""In the place of a flag's letter: rows do not repeat what is so of all of them."""


class Density(IntEnum):
    """How much a row shows where the terminal is narrow."""

    INTERVALS = 0
    SPREADS = 1
    GATES = 2
    HEADLINES = 3


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
    alone = [(name,) for name in names if name in scaled]
    others = tuple(name for name in names if name not in scaled)
    found = tuple(_group(members, shown) for members in (*alone, *([others] if others else [])))
    return tuple(_ranked(group) if _compares_trainings(group) else group for group in found)


def _compares_trainings(group: Group) -> bool:
    """Whether several benchmarks train on equally many GPUs, and nothing relates them but their figures."""
    names = {headline_name(point) for point in group.points if headline(point)}
    return len(group.benchmarks) > 1 and names == {"tokens_per_s"} and len({p.num_gpus for p in group.points}) == 1


def _ranked(group: Group) -> Group:
    """The fastest first; points without a figure last."""

    def place(point: PointResult) -> float:
        found = headline(point)
        return -found.value if found else math.inf

    return replace(group, points=tuple(sorted(group.points, key=place)), is_ranked=True)


def _group(benchmarks: tuple[str, ...], shown: Sequence[PointResult]) -> Group:
    points = tuple(point for point in shown if point.benchmark in benchmarks)
    found = short_labels(points, with_benchmark=len(benchmarks) > 1)
    return Group(benchmarks, points, found, _shared(benchmarks, points), flag_letters(points))


def parts(group: Group) -> tuple[Group, ...]:
    """The group's points apart: by benchmark, or by the first axis of words that varies, such as the backend.

    All together where neither varies.
    """
    if len(group.benchmarks) > 1:
        return tuple(replace(_group((name,), group.points), letters=group.letters) for name in group.benchmarks)
    axes = {name: value for name, value in group.points[0].axes.items() if isinstance(value, str)}
    names = [name for name, value in axes.items() if any(point.axes.get(name) != value for point in group.points)]
    if not names:
        return (group,)
    values = dict.fromkeys(point.axes[names[0]] for point in group.points)
    apart = ([point for point in group.points if point.axes[names[0]] == value] for value in values)
    return tuple(replace(_group(group.benchmarks, points), letters=group.letters) for points in apart)


def _shared(benchmarks: Sequence[str], points: Sequence[PointResult]) -> tuple[str, ...]:
    """Axes shared by all points, then by the points of each benchmark, then the attempts."""
    everywhere = shared_axes(points) if len(points) > 1 or len(benchmarks) == 1 else {}
    parts = [", ".join(axis_text(*axis) for axis in everywhere.items())]
    if len(benchmarks) > 1:
        own: dict[str, list[str]] = {}
        for name in benchmarks:
            axes = shared_axes([point for point in points if point.benchmark == name])
            words = ", ".join(axis_text(*axis) for axis in axes.items() if axis[0] not in everywhere)
            own.setdefault(words, []).append(name)
        parts += [f"{words}: {', '.join(names)}" for words, names in own.items() if words]
    attempts = {point.attempts for point in points if point.attempts}
    if attempts:
        least, most = min(attempts), max(attempts)
        many = plural(most, "attempt")
        parts.append(f"{many} each" if least == most else f"{least} to {many}")
    return tuple(part for part in parts if part)


def overview(results: Results, group: Group, density: Density) -> Table:
    """The group's table, without columns that are empty in every row."""
    measured = [found for point in group.points if (found := headline(point))]
    joules = [found for point in group.points if (found := energy(point))]
    scale, energy_scale = shared_scale(measured), shared_scale(joules)
    more = () if density is Density.HEADLINES else _more_metrics(results, group)
    roomy = density < Density.GATES
    beside = () if density is Density.HEADLINES else secondaries(group.points, shown=more, roomy=roomy)
    heads = (
        "point",
        _figure_head(group, scale),
        "speedup",
        "expected",
        "allowed",
        *map(metric_words, more),
        *(one.head for one in beside),
        energy_scale.unit if energy_scale else "energy",
        "verdict",
        "flags",
    )
    wanted = Expectations.of(results)
    ratios = {point.id: _ratio_cells(wanted, point, density) for point in group.points}
    if all(ratio == NONE for ratio, _ in ratios.values()):
        ratios = dict.fromkeys(ratios, (NONE, NONE))  # expectations alone would stand beside figures of another unit
    rows = [
        (
            group.labels[point.id],
            with_spread(headline(point), scale),
            *ratios[point.id],
            _allowed(wanted, point, scale),
            *(_also(wanted, point, metric) for metric in more),
            *(one.cell(point) or NONE for one in beside),
            _energy(wanted, point, energy_scale, density),
            wanted.verdict(point),
            " ".join(sorted({group.letters[flag] for flag in relevant(point)} - {EVERY_POINT})),
        )
        for point in group.points
    ]
    table = Table(_title(group), heads, tuple(rows)).without_empty_columns()
    return _with_one_limit(table) if density >= Density.GATES else table


def flag_letters(points: Sequence[PointResult]) -> dict[str, str]:
    """A letter for each flag that matters, in the order of first use; none for what every measured point has."""
    measured = [relevant(point) for point in points if point.status == "ok"]
    flags = dict.fromkeys(flag for point in points for flag in relevant(point))
    shared = {flag for flag in flags if len(measured) > 1 and all(flag in own for own in measured)}
    rest = [flag for flag in flags if flag not in shared]
    letters = {flag: chr(ord("a") + number) if number < 26 else flag for number, flag in enumerate(rest)}  # noqa: PLR2004
    return {flag: letters.get(flag, EVERY_POINT) for flag in flags}


def _title(group: Group) -> str:
    if len(group.benchmarks) == 1:
        return group.benchmarks[0]
    return "points, the fastest first" if group.is_ranked else "points"


def _figure_head(group: Group, scale: Scale | None) -> str:
    """The unit that all figures have, and whether each is of one GPU, or of saving, beside which loading stands."""
    if scale is None:
        return "figure"
    names = {name for point in group.points if (name := headline_name(point))}
    if names == {"save_bytes_per_s"}:
        return f"save {scale.unit}"
    return f"{scale.unit} per GPU" if all(name.endswith("_per_gpu") for name in names) else scale.unit


def _ratio_cells(wanted: Expectations, point: PointResult, density: Density) -> tuple[str, str]:
    row = wanted.ratio(point)
    if row is None:
        return ("1 (baseline)" if point.id in wanted.baselines else NONE), NONE
    lower = METRICS[row.metric].higher_is_better if row.metric in METRICS else True
    expected = row.expected
    if expected is None:
        return _ratio_text(row, density), NONE
    if density >= Density.GATES:
        return _ratio_text(row, density), gate(expected.minimum, expected.maximum, lower=lower)
    return _ratio_text(row, density), limits(expected.minimum, expected.maximum)


def _ratio_text(row: ScalingResult, density: Density) -> str:
    if row.speedup is None:
        return NONE
    if density is Density.INTERVALS:
        return f"{row.speedup:.3f} {interval(row.speedup_low, row.speedup_high)}".strip()
    value = Estimate(value=row.speedup, low=row.speedup_low, high=row.speedup_high, unit="")
    return with_spread(value, ONE)


def _allowed(wanted: Expectations, point: PointResult, scale: Scale | None) -> str:
    check = wanted.check(point, headline_name(point))
    if check is None or (check.minimum is None and check.maximum is None):
        return NONE
    lower = check.minimum is not None
    return gate(check.minimum, check.maximum, scale or _own_scale(point), lower=lower)


def _energy(wanted: Expectations, point: PointResult, scale: Scale | None, density: Density) -> str:
    """Joules, with their limit where there is room."""
    found = with_spread(energy(point), scale)
    check = wanted.check(point, energy_name(point))
    if check is None or (check.minimum is None and check.maximum is None) or density is Density.HEADLINES:
        return found
    return f"{found} ({gate(check.minimum, check.maximum, scale, lower=check.minimum is not None)})"


def _own_scale(point: PointResult) -> Scale | None:
    found = headline(point)
    return shared_scale([found]) if found else None


def _more_metrics(results: Results, group: Group) -> tuple[str, ...]:
    """Metrics without a column of their own that the suite limits; the guard on the loss is not one of them."""
    ids = {point.id: {headline_name(point), energy_name(point), LOSS_GUARD} for point in group.points}
    checked = (c.metric for c in results.checks if c.metric not in ids.get(c.point_id, {c.metric}))
    return tuple(dict.fromkeys(checked))


def _also(wanted: Expectations, point: PointResult, metric: str) -> str:
    check = wanted.check(point, metric)
    if check is None or (check.minimum is None and check.maximum is None):
        return quantity(point.metrics.get(metric))
    found = quantity(check.value)
    scale = shared_scale([check.value]) if check.value else None
    return f"{found} ({gate(check.minimum, check.maximum, scale, lower=check.minimum is not None)})"


def _with_one_limit(table: Table) -> Table:
    """One column for the limits of ratios and of figures, where no row has both."""
    if not {"expected", "allowed"} <= set(table.heads):
        return table
    of_ratio, of_figure = table.heads.index("expected"), table.heads.index("allowed")
    if any(NONE not in {row[of_ratio], row[of_figure]} for row in table.rows):
        return table

    def merged(row: tuple[str, ...], limit: str) -> tuple[str, ...]:
        cells = [cell for place, cell in enumerate(row) if place != of_figure]
        return (*cells[:of_ratio], limit, *cells[of_ratio + 1 :])

    rows = (merged(row, row[of_figure] if row[of_ratio] == NONE else row[of_ratio]) for row in table.rows)
    return Table(table.title, merged(table.heads, "limit"), tuple(rows))
