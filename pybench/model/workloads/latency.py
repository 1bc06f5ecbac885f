"""Latencies of requests: each with its mean and percentiles over the requests of a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pybench.model.workloads.traits import MetricTraits, less


def percentiles(ordered: Sequence[float], percents: tuple[float, ...]) -> list[float]:
    """Percentiles of sorted values, interpolated between the two nearest, in the values' unit.

    Definition 7 of R. Hyndman and Y. Fan (The American Statistician 50(4), 1996), as numpy's default. Raises
    ``IndexError`` without any value.
    """
    return [
        ordered[below] + (ordered[above] - ordered[below]) * weight
        for below, above, weight in _places(len(ordered), percents)
    ]


@lru_cache
def _places(count: int, percents: tuple[float, ...]) -> tuple[tuple[int, int, float], ...]:
    """For each percentile of ``count`` sorted values: the two nearest, and the weight of the second.

    Most steps have few values, for which numpy's call costs more than the work.
    """
    places = [(count - 1) * percent / 100 for percent in percents]
    return tuple((int(place), min(int(place) + 1, count - 1), place % 1) for place in places)


PERCENTILES = (50, 90, 95, 99, 99.9)

KINDS = {
    "ttft": "time to first token, from a request's arrival",
    "tpot": "time per output token of a request after its first",
    "itl": "time between a request's tokens; of several replicas the slowest",
    "e2e": "end-to-end latency, from a request's arrival to its last token",
}


def percentile_name(kind: str, percent: float) -> str:
    """The metric of a percentile: ``ttft_p99_s``, ``ttft_p999_s``."""
    return f"{kind}_p{percent:g}_s".replace(".", "")


METRICS: dict[str, MetricTraits] = {
    name: less("s", f"{description}; {which}", "max" if kind == "itl" else None)
    for kind, description in KINDS.items()
    for name, which in (
        (f"{kind}_s", "mean"),
        *((percentile_name(kind, percent), f"{percent}th percentile") for percent in PERCENTILES),
    )
}
