"""Tables of claims and whole jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pybench.core.numbers import (
    Scale,
    interval,
    limits,
    percent,
    plain,
    quantity_with_interval,
    shared_scale,
    spread,
    with_spread,
)
from pybench.core.verdict import ONE_ATTEMPT
from pybench.model.results import ClaimResult, Estimate, Results, order_words
from pybench.model.text import plural
from pybench.model.workloads.registry import METRICS
from pybench.report.table import Table

_CROSSED = "the interval holds the claim's limit; more attempts narrow it"


def claims(results: Results, names: Mapping[str, str]) -> Table:
    """Claims for the terminal, with each source once below its rows."""
    table = claim_table(results, names)
    below = (*(row[-1] for row in table.rows[1:]), None)
    rows = ((*row[:-1], "" if row[-1] == after else row[-1]) for row, after in zip(table.rows, below, strict=False))
    return replace(table, rows=tuple(rows)).with_one_metric("Claims of {}, which judge nothing").without_empty_columns()


def claim_table(results: Results, names: Mapping[str, str]) -> Table:
    """Every claim; the reason is why it is open, and about how many attempts would decide it."""
    benchmarks = {point.id: point.benchmark for point in results.points}

    def reason(claim: ClaimResult) -> str:
        why, needed = ONE_ATTEMPT if claim.found.low is None else _CROSSED, claim.attempts_to_decide
        return why if needed is None else f"{why}; about {plural(needed, 'attempt')} would decide it"

    rows = tuple(
        (
            names.get(claim.point_id, claim.point_id),
            claim.metric,
            _claimed(claim, names, benchmarks),
            _found(claim),
            claim.state,
            reason(claim) if claim.state == "open" else "",
            claim.source,
        )
        for claim in results.claims
    )
    heads = ("point", "metric", "claimed", "found", "state", "reason", "source")
    return Table("Claims, which judge nothing", heads, rows)


def _claimed(claim: ClaimResult, names: Mapping[str, str], benchmarks: Mapping[str, str]) -> str:
    """In the words of comparisons where the other side is a point of another benchmark."""
    minimum, maximum, other = claim.minimum, claim.maximum, claim.baseline_id
    if other is None:
        return limits(minimum, maximum, METRICS[claim.metric].unit)
    if claim.widening_along is not None:
        way = "rises" if maximum is None else "falls"
        return f"ratio to {benchmarks.get(other, other)} {way} along {claim.widening_along}"
    if claim.table is not None or (minimum is None) == (maximum is None):
        return limits(minimum, maximum)
    words = order_words("below", maximum) if maximum is not None else order_words("above", minimum or 0.0)
    return f"{words} {names.get(other, other)}"


def _found(claim: ClaimResult) -> str:
    """A figure, a ratio, or the way that a ratio goes: ``rises 28.4 % [20.1, 36.7]``, the last one over the first."""
    figure, ends = claim.found, (claim.found.low, claim.found.high)
    if claim.baseline_id is None:
        return quantity_with_interval(figure)
    if claim.widening_along is None:
        return f"{figure.value:.3f}x {interval(*ends)}".rstrip()
    way = 1 if figure.value >= 1 else -1
    moved = interval(*sorted(100.0 * way * (end - 1) for end in ends if end is not None)) if None not in ends else ""
    return f"{'rises' if way > 0 else 'falls'} {percent(abs(figure.value - 1))} {moved}".rstrip()


_ENERGIES = ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"))


def job_table(results: Results, names: Mapping[str, str]) -> Table:
    """One row for each number of GPUs; savings are against the fewest GPUs. GPU hours only where they differ."""
    jobs = results.jobs

    def saved(fraction: Estimate | None) -> str:
        half = None if fraction is None else spread(fraction.value, fraction.low, fraction.high)
        # Of a spread beyond the whole nothing can be read.
        return "unclear" if half is not None and half > 1 else percent(None if fraction is None else fraction.value)

    time = shared_scale(job.time_h for job in jobs) or Scale(1.0, "h")
    least_j = min((abs(job.energy_j.value) for job in jobs if job.energy_j), default=None)
    energy = None if least_j is None else Scale(*next((s for s in _ENERGIES if least_j >= s[0]), _ENERGIES[-1]))
    several = any(job.num_gpus > 1 for job in jobs)
    sizes = sorted({(job.samples, job.epochs) for job in jobs})
    size = ", ".join(f"{samples:,} samples x {plural(epochs, 'epoch')}" for samples, epochs in sizes)
    rows = tuple(
        (
            names.get(job.point_id, job.point_id),
            str(job.num_gpus),
            with_spread(job.time_h, time),
            saved(job.time_saved_fraction),
            *((plain(job.num_gpus * job.time_h.value / time.factor),) if several else ()),
            *((with_spread(job.energy_j, energy), saved(job.energy_saved_fraction)) if energy else ()),
        )
        for job in jobs
    )
    of_gpus = (f"GPU-{time.unit}",) if several else ()
    of_energy = (energy.unit, "energy saved") if energy else ()
    heads = ("point", "GPUs", time.unit, "time saved", *of_gpus, *of_energy)
    return Table(f"Job: {size}, training steps alone", heads, rows)
