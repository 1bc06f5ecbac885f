"""Trainings beside each other, claims, and whole jobs, as rows of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pybench.core.numbers import (
    Scale,
    interval,
    limits,
    percent,
    plain,
    quantity,
    quantity_with_interval,
    shared_scale,
    short_percent,
    spread,
    with_spread,
)
from pybench.core.verdict import ONE_ATTEMPT
from pybench.model.results import ClaimResult, Estimate, JobResult, PointResult, Results, order_words
from pybench.model.text import plural
from pybench.model.workloads.registry import METRICS

TRAINING_HEADS = (
    *("point", "rank", "tokens/s", "per GPU", "MFU", "HFU", "memory", "energy", "rank by memory", "rank by energy"),
    *("batch per GPU", "trained", "exposed comm.", "straggler gap", "input wait", "evaluation", "loss"),
)


def training_rows(points: Sequence[PointResult], names: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Cells of every measured training point, the fastest first; equal places for equal figures, of one alone none."""
    trained = [point for point in points if "tokens_per_s" in point.metrics]
    ordered = sorted(trained, key=lambda point: -point.metrics["tokens_per_s"].value)
    return tuple(_training_row(point, names[point.id], ordered) for point in ordered)


def _training_row(point: PointResult, name: str, everyone: Sequence[PointResult]) -> tuple[str, ...]:
    metrics = point.metrics
    return (
        name,
        _place(point, everyone, "tokens_per_s", more=True),
        quantity(metrics.get("tokens_per_s")),
        quantity(metrics.get("flops_per_s_per_gpu")),
        _percent(metrics.get("mfu_fraction")),
        _percent(metrics.get("hfu_fraction")),
        quantity(metrics.get("peak_memory_bytes")),
        quantity(metrics.get("energy_j_per_token")),
        _place(point, everyone, "peak_memory_bytes", more=False),
        _place(point, everyone, "energy_j_per_token", more=False),
        _plain(metrics.get("batch_size_per_gpu")),
        _trained(metrics),
        _percent(metrics.get("exposed_communication_fraction")),
        _percent(metrics.get("straggler_gap_fraction")),
        _percent(metrics.get("input_wait_fraction")),
        _percent(metrics.get("evaluation_overhead_fraction")),
        _plain(metrics.get("loss")),
    )


def _place(point: PointResult, everyone: Sequence[PointResult], metric: str, *, more: bool) -> str:
    if metric not in point.metrics:
        return "-"
    own = point.metrics[metric].value
    others = [other.metrics[metric].value for other in everyone if metric in other.metrics]
    if len(others) == 1:
        return "-"
    return str(1 + sum(other > own if more else other < own for other in others))


def _trained(metrics: Mapping[str, Estimate]) -> str:
    """Adapters alone: how many parameters, and their share."""
    if "trained_fraction" not in metrics:
        return "-"
    share = short_percent(metrics["trained_fraction"].value)
    return f"{plain(metrics['trained_parameters'].value)} ({share})"


def _percent(estimate: Estimate | None) -> str:
    return percent(estimate.value if estimate else None)


def _plain(estimate: Estimate | None) -> str:
    return plain(estimate.value) if estimate else "-"


CLAIMS_TITLE = "Claims, which judge nothing"
CLAIM_HEADS = ("point", "metric", "claimed", "found", "state", "reason", "source")
_PERCENT = 100.0
_CROSSED = "the interval holds the claim's limit; more attempts narrow it"


def claim_rows(results: Results, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Cells of every claim; the reason is why it is open."""
    benchmarks = {point.id: point.benchmark for point in results.points}
    for claim in results.claims:
        yield (
            names.get(claim.point_id, claim.point_id),
            claim.metric,
            _claimed(claim, names, benchmarks),
            _found(claim),
            claim.state,
            _open(claim) if claim.state == "open" else "",
            claim.source,
        )


def _open(claim: ClaimResult) -> str:
    """Why the claim is open, and about how many attempts would decide it."""
    why = ONE_ATTEMPT if claim.found.low is None else _CROSSED
    needed = claim.attempts_to_decide
    return why if needed is None else f"{why}; about {plural(needed, 'attempt')} would decide it"


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
    if claim.baseline_id is None:
        return quantity_with_interval(claim.found)
    if claim.widening_along is not None:
        return _move(claim.found)
    return f"{claim.found.value:.3f}x {interval(claim.found.low, claim.found.high)}".rstrip()


def _move(change: Estimate) -> str:
    """The way that a ratio goes, by the last one over the first: ``rises 28.4 % [20.1, 36.7]``."""
    way = 1 if change.value >= 1 else -1
    words = f"{'rises' if way > 0 else 'falls'} {percent(abs(change.value - 1))}"
    if change.low is None or change.high is None:
        return words
    ends = sorted(_PERCENT * way * (end - 1) for end in (change.low, change.high))
    return f"{words} {interval(*ends)}"


_ENERGIES = ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"))


def job_title(jobs: Sequence[JobResult]) -> str:
    """For instance ``Job: 2,686 samples x 3 epochs, training steps alone``; of several jobs all sizes."""
    sizes = {(job.samples, job.epochs) for job in jobs}
    return f"Job: {', '.join(_size(*size) for size in sorted(sizes))}, training steps alone"


def job_heads(jobs: Sequence[JobResult]) -> tuple[str, ...]:
    """Heads of :func:`job_rows`; those of energy where any was measured, those of GPU hours where they differ."""
    time, energy = _scales(jobs)
    of_gpus = (f"GPU-{time.unit}",) if _of_several_gpus(jobs) else ()
    of_energy = (energy.unit, "energy saved") if energy else ()
    return ("point", "GPUs", time.unit, "time saved", *of_gpus, *of_energy)


def job_rows(results: Results, names: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """One row for each point; what is saved is against the fewest GPUs."""
    time, energy = _scales(results.jobs)
    several = _of_several_gpus(results.jobs)

    def row(job: JobResult) -> tuple[str, ...]:
        of_gpus = (plain(job.num_gpus * job.time_h.value / time.factor),) if several else ()
        of_energy = (with_spread(job.energy_j, energy), _saved(job.energy_saved_fraction)) if energy else ()
        of_time = (with_spread(job.time_h, time), _saved(job.time_saved_fraction))
        return (names.get(job.point_id, job.point_id), str(job.num_gpus), *of_time, *of_gpus, *of_energy)

    return tuple(row(job) for job in results.jobs)


def _of_several_gpus(jobs: Sequence[JobResult]) -> bool:
    """On one GPU, GPU hours are hours."""
    return any(job.num_gpus > 1 for job in jobs)


def _saved(fraction: Estimate | None) -> str:
    """In percent; of a spread beyond the whole nothing can be read."""
    if fraction is None:
        return "-"
    half = spread(fraction.value, fraction.low, fraction.high)
    return "unclear" if half is not None and half > 1 else percent(fraction.value)


def _scales(jobs: Sequence[JobResult]) -> tuple[Scale, Scale | None]:
    time = shared_scale(job.time_h for job in jobs)
    least_j = min((abs(job.energy_j.value) for job in jobs if job.energy_j), default=None)
    if least_j is None:
        return time or Scale(1.0, "h"), None
    return time or Scale(1.0, "h"), Scale(*next((s for s in _ENERGIES if least_j >= s[0]), _ENERGIES[-1]))


def _size(samples: int, epochs: int) -> str:
    return f"{samples:,} samples x {plural(epochs, 'epoch')}"
