"""Time between two tokens of one request, over all requests of a step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from pybench.model.percentiles import percentiles
from pybench.model.workloads.latency import PERCENTILES


def gap_values(gaps_s: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles, by the names of their metrics; empty without a gap."""
    if not gaps_s:
        return {}
    ordered = sorted(gaps_s)
    found_s = zip(PERCENTILES, percentiles(ordered, PERCENTILES), strict=True)
    return {"itl_s": fmean(ordered), **{f"itl_p{percent}_s": value for percent, value in found_s}}
