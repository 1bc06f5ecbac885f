"""A change in words: the metric, the quantity before and after, per cent with its interval; a series as a sparkline."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from pybench.core.measurements import grouped
from pybench.core.numbers import plain, quantity, signed_percent, spread
from pybench.model.figures import Change
from pybench.model.results import Estimate
from pybench.model.workloads.registry import HEADLINES

_METRICS = {
    **dict.fromkeys(HEADLINES, "speed"),
    "samples_per_s": "samples",  # of a training beside its tokens
    "step_s": "step",
    "ttft_s": "first token",
    "tpot_s": "per token",
    "energy_j": "energy",
    "energy_j_per_output_token": "energy",
    "energy_j_per_token": "energy",
    "energy_j_per_sample": "energy",
    "peak_memory_bytes": "memory",
}


def metric_words(metric: str) -> str:
    """A metric in a narrow table; metrics named on the command line keep their name."""
    return _METRICS.get(metric, metric)


def rows_text(rows: Iterable[tuple[str, str]], names: Mapping[str, str]) -> str:
    """Points with their metrics, which points that have the same share: ``TP 1; TP 2 (speed, energy of each)``."""
    words = grouped((names.get(point, point), metric_words(metric)) for point, metric in rows)
    alike = grouped((", ".join(metrics), name) for name, metrics in words.items())
    return "; ".join(
        f"{'; '.join(points)} ({metrics}{' of each' * (len(points) > 1)})" for metrics, points in alike.items()
    )


def across_options(words: Iterable[str]) -> str:
    """The options that allow runs to differ in these, quoted for a shell; empty without any."""
    return " ".join(f"--across {shlex.quote(word)}" for word in words)


def value_text(value: float | None, unit: str) -> str:
    """A value with its unit; a dash where there is none."""
    return "-" if value is None else quantity(Estimate(value=value, low=None, high=None, unit=unit)).strip()


def difference_text(change: Change) -> str:
    """Now less before, in the metric's unit: joules of an energy."""
    difference = change.difference
    if difference is None:
        return "-"
    text = value_text(difference, change.unit)
    return f"+{text}" if difference > 0 else text


def percent_text(change: Change) -> str:
    """The change in per cent ± the larger half of its interval, or with both ends where ± would reach below nothing."""
    text = "-" if change.fraction is None else signed_percent(change.fraction)
    half = None if change.fraction is None else spread(change.fraction, change.low, change.high)
    if change.fraction is None or half is None:
        return text
    return f"{text} ±{plain(100 * half, 2)}" if half <= 1 + change.fraction else f"{text} {ends_text(change)}"


def ends_text(change: Change) -> str:
    """Its interval in per cent; empty where there is none."""
    if change.low is None or change.high is None:
        return ""
    return f"[{signed_percent(change.low)}, {signed_percent(change.high)}]"


_BLOCKS = "▁▂▃▄▅▆▇█"
_GAP = "·"
LEAST_RANGE_FRACTION = 0.02
"""A line spans at least 2 % of its middle value, so that noise does not look like news."""


def sparkline(values: Sequence[float | None], width: int = 30) -> str:
    """At most ``width`` blocks, each the median of its share of the values by time; a dot where there is none."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    middle = median(known)
    room = max(max(known) - min(known), LEAST_RANGE_FRACTION * abs(middle))
    centre = (max(known) + min(known)) / 2
    columns = min(width, len(values))
    cuts = [len(values) * column // columns for column in range(columns + 1)]
    shares = ([v for v in values[start:end] if v is not None] for start, end in pairwise(cuts))
    most, heights = len(_BLOCKS), [(median(share) - centre) / (room or 1) if share else None for share in shares]
    return "".join(_GAP if at is None else _BLOCKS[min(int((0.5 + at) * most), most - 1)] for at in heights)
