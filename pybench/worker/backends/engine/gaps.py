"""Time between two tokens of one request, over all requests of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from pybench.model.workloads.latency import PERCENTILES


def gap_values(gaps_s: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles, by the names of their metrics; empty without a gap."""
    if not gaps_s:
        return {}
    ordered = sorted(gaps_s)
    return {"itl_s": fmean(ordered), **{f"itl_p{p}_s": _percentile(ordered, p) for p in PERCENTILES}}


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Interpolated between the two nearest, as numpy's default does."""
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
