"""Latencies of requests: each with its mean and percentiles over the requests of a step."""

from __future__ import annotations

from pybench.model.workloads.metric import MetricTraits, OverRanks, less

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


def _of_kind(kind: str, description: str) -> dict[str, MetricTraits]:
    over_ranks: OverRanks | None = "max" if kind == "itl" else None
    names = {f"{kind}_s": "mean"} | {
        percentile_name(kind, percent): f"{percent}th percentile" for percent in PERCENTILES
    }
    return {name: less("s", f"{description}; {which}", over_ranks) for name, which in names.items()}


METRICS: dict[str, MetricTraits] = {
    name: traits for kind, description in KINDS.items() for name, traits in _of_kind(kind, description).items()
}
