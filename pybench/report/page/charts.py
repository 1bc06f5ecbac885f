"""Charts of the page as inline SVG: ratios over GPUs, joules and latencies over throughput, step times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from pybench.core.joint_step import joint_steps
from pybench.core.measurements import grouped
from pybench.core.numbers import interval, limits, plain, quantity_with_interval, shared_scale
from pybench.model.results import Estimate, PointResult, Results, ScalingResult
from pybench.model.workloads.registry import METRICS
from pybench.report.page import svg
from pybench.report.page.svg import Axes
from pybench.report.run.headline import energy, headline, requests_differ
from pybench.report.run.view import RunView
from pybench.report.text.labels import axis_text, short_labels, verdict_words

_MOST_STRIPS = 60


@dataclass(frozen=True)
class Chart:
    """A drawing, its title, what its series and lines are called, and the figures behind it as a table."""

    title: str
    drawing: Markup
    series: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...] = ()


def scaling_charts(results: Results) -> tuple[Chart, ...]:
    """One for each benchmark and metric with measured ratios."""
    kinds = grouped(((row.benchmark, row.metric), row) for row in results.scaling if row.speedup is not None)
    return tuple(_scaling(*kind, rows) for kind, rows in kinds.items())


def _scaling(benchmark: str, metric: str, rows: Sequence[ScalingResult]) -> Chart:
    more = METRICS[metric].higher_is_better if metric in METRICS else True
    groups = grouped((_group(row), row) for row in sorted(rows, key=lambda row: row.count))
    names = list(dict.fromkeys(map(_group, rows)))
    counts = sorted({row.count for row in rows} | {row.baseline_count for row in rows})
    tops = [value for row in rows for value in (row.speedup, row.speedup_high)]
    tops += [row.expected.maximum for row in rows if row.expected]
    linear = max(row.count / row.baseline_count for row in rows) if more else 1.0
    axes = Axes(counts[-1] * 1.08, 1.08 * max([linear, *(value for value in tops if value is not None)]))
    name = "speedup" if more else "ratio to the baseline"
    parts = [svg.grid(axes, [float(count) for count in counts], "GPUs", name, lambda value: f"{value:g}")]
    parts += [_band(axes, groups[group], more=more) for group in names]
    if more:
        baseline = min(row.baseline_count for row in rows)
        ends = ((axes.x(baseline), axes.y(1)), (axes.x(counts[-1]), axes.y(counts[-1] / baseline)))
        parts.append(svg.line(*ends, "linear"))
    parts += [_series(axes, groups[group], number) for number, group in enumerate(names)]
    described = "; ".join(f"{_group(row)} {row.count} GPUs {row.speedup:.3g}" for row in rows)
    title = f"{benchmark}: {metric}"
    cells = tuple(
        (
            _group(row) or "measured",
            str(row.count),
            f"{row.speedup:.3f}",
            interval(row.speedup_low, row.speedup_high) or "-",
            limits(row.expected.minimum, row.expected.maximum) if row.expected else "-",
            verdict_words(row.verdict),
        )
        for row in rows
    )
    series = tuple(names) if len(names) > 1 or names[0] else ("measured",)
    heads = ("series", "GPUs", name, "95 % interval", "expected", "verdict")
    lines = ("expected", "linear") if more else ("expected",)
    return Chart(title, svg.figure(title, described, parts), series, heads, cells, lines)


def _group(row: ScalingResult) -> str:
    return ", ".join(axis_text(*axis) for axis in row.group.items())


def _band(axes: Axes, rows: Sequence[ScalingResult], *, more: bool) -> Markup:
    """From the baseline at 1 through the expected range of each count; open ranges reach the chart's edge."""
    known = [(row, row.expected) for row in rows if row.expected is not None]
    low = [(axes.x(row.baseline_count), axes.y(1.0)) for row, _ in known[:1]]
    high = [*low]
    for row, expected in known:
        least = expected.minimum if expected.minimum is not None else 0.0
        most = expected.maximum if expected.maximum is not None else axes.y_max if more else least
        low.append((axes.x(row.count), axes.y(least)))
        high.append((axes.x(row.count), axes.y(most)))
    return svg.polygon([*low, *reversed(high)], "band") if known else Markup("")


def _series(axes: Axes, rows: Sequence[ScalingResult], number: int) -> Markup:
    first = (axes.x(rows[0].baseline_count), axes.y(1.0))
    places = [(axes.x(row.count), axes.y(row.speedup or 0.0)) for row in rows]
    parts = [svg.polyline([first, *places], f"curve series{number % 8}")]
    parts.append(svg.marker(first, number, f"{rows[0].baseline_count} GPUs: 1 (baseline)"))
    for row, place in zip(rows, places, strict=True):
        if row.speedup_low is not None and row.speedup_high is not None:
            low, high = (place[0], axes.y(row.speedup_low)), (place[0], axes.y(row.speedup_high))
            parts.append(svg.line(low, high, f"error series{number % 8}"))
        tip = f"{_group(row)} {row.count} GPUs: {row.speedup:.3f} {interval(row.speedup_low, row.speedup_high)}"
        parts.append(svg.marker(place, number, f"{tip}, {row.verdict}".strip()))
    return Markup("").join(parts)


def throughput_charts(results: Results) -> tuple[Chart, ...]:
    """Joules for each token or sample over throughput, and the latency of requests over it, where they are known."""

    def latency(point: PointResult) -> Estimate | None:
        return point.metrics["e2e_p99_s"] if requests_differ(point) else None

    joules = _against_throughput(results, "Energy against throughput", "energy", energy)
    times = _against_throughput(results, "Latency against throughput", "end to end, p99", latency)
    return tuple(chart for chart in (joules, times) if chart)


def _against_throughput(
    results: Results, title: str, name: str, figure_of: Callable[[PointResult], Estimate | None]
) -> Chart | None:
    """A mark a point; ``None`` where no point has the figure."""
    shown = [(p, h, f) for p in results.points if (h := headline(p)) and (f := figure_of(p))]
    speeds, scale = shared_scale([h for _, h, _ in shown]), shared_scale([f for _, _, f in shown])
    if not shown or speeds is None or scale is None:
        return None
    names = short_labels([point for point, _, _ in shown], with_benchmark=True)
    benchmarks = list(dict.fromkeys(point.benchmark for point, _, _ in shown))
    # Of zeros alone, an axis to 1.
    axes = Axes(
        1.12 * max(h.value for _, h, _ in shown) / speeds.factor or 1.0,
        1.2 * max(f.value for _, _, f in shown) / scale.factor or 1.0,
    )
    parts = [svg.grid(axes, svg.ticks(axes.x_max, 5), speeds.unit, f"{name}, {scale.unit}", plain)]
    for point, speed, figure in shown:
        x, y = axes.x(speed.value / speeds.factor), axes.y(figure.value / scale.factor)
        if figure.low is not None and figure.high is not None:
            ends = ((x, axes.y(figure.low / scale.factor)), (x, axes.y(figure.high / scale.factor)))
            parts.append(svg.line(*ends, "error"))
        tip = f"{names[point.id]}: {quantity_with_interval(speed)}, {quantity_with_interval(figure)}"
        parts.append(svg.marker((x, y), benchmarks.index(point.benchmark), tip))
        if len(shown) <= 8:  # noqa: PLR2004 - more names would overlap
            parts.append(svg.text(x, y - 10, names[point.id].removeprefix(f"{point.benchmark} "), "middle"))
    rows = tuple((names[p.id], quantity_with_interval(h), quantity_with_interval(f)) for p, h, f in shown)
    described = "; ".join(", ".join(row) for row in rows)
    heads = ("point", "throughput", name)
    return Chart(title, svg.figure(title, described, parts), tuple(benchmarks), heads, rows)


def step_chart(view: RunView) -> Chart | None:
    """Every measured step of every attempt over the median of its point; ``None`` without records."""
    lengths_s = ((record.point_id, [step.length_s for step in joint_steps(record)]) for record in view.good_records)
    steps = grouped((point_id, attempt) for point_id, attempt in lengths_s if attempt)
    times = {point_id: [time_s for attempt in attempts for time_s in attempt] for point_id, attempts in steps.items()}
    middles = {point_id: median(times_s) for point_id, times_s in times.items()}
    reach = {point_id: max(times[point_id]) / middle if middle else 0.0 for point_id, middle in middles.items()}
    names = short_labels(view.results.points, with_benchmark=True)
    widest = sorted(steps, key=lambda point_id: -reach[point_id])[:_MOST_STRIPS]
    shown = [point for point in view.results.points if point.id in widest]
    if not shown:
        return None
    height = svg.TOP + svg.BOTTOM + 26 * len(shown)
    parts, bottom = [], svg.TOP + 26 * len(shown)
    for relative in (0.5, 0.75, 1.0, 1.25, 1.5):
        at = _strip_x(relative)
        parts.append(svg.line((at, svg.TOP), (at, bottom), "axis" if relative == 1.0 else "grid"))
        parts.append(svg.text(at, bottom + 18, f"{relative:g}", "middle"))
    parts.append(svg.text((_STRIP_LEFT + _STRIP_RIGHT) / 2, height - 6, "step over median", "middle", "name"))
    rows = []
    for place, point in enumerate(shown):
        attempts, times_s, middle = steps[point.id], times[point.id], middles[point.id]
        parts.append(_strip(place, names[point.id], attempts, middle))
        lengths = (f"{plain(value)} s" for value in (middle, min(times_s), max(times_s)))
        over = f"{reach[point.id]:.2f}" if middle else "-"
        rows.append((names[point.id], str(len(attempts)), str(len(times_s)), *lengths, over))
    heads = ("point", "attempts", "steps", "median", "shortest", "longest", "longest over median")
    title = "Step times"
    described = f"{len(shown)} points, each step over its point's median"
    return Chart(title, svg.figure(title, described, parts, 760, height), (), heads, tuple(rows))


_STRIP_LEFT, _STRIP_RIGHT, _STRIP_LEAST, _STRIP_MOST = 230, 744, 0.5, 1.5


def _strip_x(relative: float) -> float:
    inside = min(max(relative, _STRIP_LEAST), _STRIP_MOST)
    return _STRIP_LEFT + (inside - _STRIP_LEAST) / (_STRIP_MOST - _STRIP_LEAST) * (_STRIP_RIGHT - _STRIP_LEFT)


def _strip(place: int, name: str, attempts: Sequence[Sequence[float]], middle: float) -> Markup:
    """Dots of one point, a lane for each attempt; a step beyond the scale is a ring at its edge."""
    top = svg.TOP + 26 * place
    parts = [svg.text(_STRIP_LEFT - 10, top + 17, name if len(name) < 36 else f"{name[:35]}…", "end")]  # noqa: PLR2004
    for number, attempt in enumerate(attempts):
        y = top + 4 + 18 * (number + 0.5) / len(attempts)
        relative = [time_s / middle if middle else 1.0 for time_s in attempt]
        dots = "".join(f"M{_strip_x(r):.1f} {y:.1f}h0" for r in relative if _STRIP_LEAST <= r <= _STRIP_MOST)
        rings = [r for r in relative if not _STRIP_LEAST <= r <= _STRIP_MOST]
        parts.append(Markup('<path class="dots series{}" d="{}"/>').format(number % 8, dots))
        for r in rings:
            tip = f"{name}, attempt {number + 1}: {r:.2f} times the median"
            ring = Markup('<circle class="outlier" cx="{:.1f}" cy="{:.1f}" r="5"><title>{}</title></circle>')
            parts.append(ring.format(_strip_x(r), y, tip))
    return Markup("").join(parts)
