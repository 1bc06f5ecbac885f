"""From records to one result for each point."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pybench.compute.stats import Samples, estimate, outlying_attempts
from pybench.model.metrics import METRICS
from pybench.model.record import Record
from pybench.model.results import Estimate, PointResult
from pybench.model.settings import Generate, Train
from pybench.model.suite import Plan, Point, Skip
from pybench.model.wire import Step


def summarize(plan: Plan, records: Sequence[Record]) -> tuple[PointResult, ...]:
    """One result for every point of the plan, measured or not, in the plan's order."""
    measured = tuple(_point_result(point, _of(point.id, records)) for point in plan.points)
    return measured + tuple(_skipped(skip) for skip in (*plan.skips, *plan.left_out))


def metric_samples(point: Point, records: Sequence[Record]) -> dict[str, Samples]:
    """Every metric's values of the point's good attempts: attempt by attempt, step by step.

    Metrics of a whole attempt (energy, memory, start-up) have one value for each. A metric that no attempt could give
    is absent.
    """
    good = [record for record in _of(point.id, records) if record.ok]
    attempts = [{**_step_metrics(point, record), **_attempt_metrics(point, record)} for record in good]
    return {name: found for name in METRICS if (found := [a[name] for a in attempts if a.get(name)])}


def joint_steps(record: Record) -> tuple[tuple[Step, float], ...]:
    """Each step as rank 0 told it, with its length in s over all ranks: earliest start to latest end."""
    ranks = [report.steps for report in record.ranks]
    return tuple(
        (together[0], (max(s.end_ns for s in together) - min(s.start_ns for s in together)) / 1e9)
        for together in zip(*ranks, strict=True)
    )


def _step_metrics(point: Point, record: Record) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for step, length_s in joint_steps(record):
        formulas = _GENERATE if isinstance(point.settings, Generate) else _train(point.settings)
        for name, formula in formulas.items():
            value = formula(step, length_s)
            if value is not None:
                values.setdefault(name, []).append(value)
    return values


def _ttft_s(step: Step, _length_s: float) -> float | None:
    return (step.token_end_ns[0] - step.start_ns) / 1e9 if step.token_end_ns else None


def _tpot_s(step: Step, _length_s: float) -> float | None:
    """(last - first) / (rounds - 1), as vLLM's serving benchmark defines it."""
    ends = step.token_end_ns
    return (ends[-1] - ends[0]) / 1e9 / (len(ends) - 1) if len(ends) > 1 else None


_Formula = Callable[[Step, float], float | None]
_GENERATE: dict[str, _Formula] = {
    "output_tokens_per_s": lambda step, length_s: step.work.output_tokens / length_s,
    "total_tokens_per_s": lambda step, length_s: (step.work.prompt_tokens + step.work.output_tokens) / length_s,
    "requests_per_s": lambda step, length_s: step.work.samples / length_s,
    "step_s": lambda _step, length_s: length_s,
    "ttft_s": _ttft_s,
    "tpot_s": _tpot_s,
}


def _train(settings: Train) -> dict[str, _Formula]:
    return {
        "tokens_per_s": lambda step, length_s: step.work.samples * settings.sequence_tokens / length_s,
        "samples_per_s": lambda step, length_s: step.work.samples / length_s,
        "step_s": lambda _step, length_s: length_s,
    }


def _attempt_metrics(point: Point, record: Record) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    memory = [m.value for rank in record.ranks for m in rank.metrics if m.name == "peak_memory_bytes"]
    if memory:
        values["peak_memory_bytes"] = [max(memory)]
    if record.startup_s is not None:
        values["startup_s"] = [record.startup_s]
    return {**values, **_energy_metrics(point, record)}


def _energy_metrics(point: Point, record: Record) -> dict[str, list[float]]:
    joules = record.energy.energy_j if record.energy else None
    if record.energy is None or joules is None:
        return {}
    steps = record.ranks[0].steps
    values = {
        "energy_j": [joules / len(steps)],
        "mean_power_w": [joules / ((record.energy.end_ns - record.energy.start_ns) / 1e9)],
    }
    if isinstance(point.settings, Train):
        tokens = sum(step.work.samples for step in steps) * point.settings.sequence_tokens
        values["energy_j_per_token"] = [joules / tokens]
    else:
        values["energy_j_per_output_token"] = [joules / sum(step.work.output_tokens for step in steps)]
    return values


def _point_result(point: Point, records: Sequence[Record]) -> PointResult:
    good = [record for record in records if record.ok]
    failures = [record.failure for record in records if record.failure]
    reason = None
    if not good:
        reason = f"{failures[0].cause}: {failures[0].message}" if failures else "not measured"
    samples = metric_samples(point, records)
    return PointResult(
        id=point.id,
        benchmark=point.benchmark,
        axes=point.axes,
        status="ok" if good else "failed" if failures else "missing",
        reason=reason,
        num_gpus=point.num_gpus,
        attempts=len(records),
        failed_attempts=len(failures),
        metrics={name: _estimate(name, found) for name, found in samples.items()},
        energy_by_gpu_j=_energy_by_gpu(good),
        flags=_flags(good, samples),
    )


def _estimate(name: str, samples: Samples) -> Estimate:
    value, low, high = estimate(samples)
    return Estimate(value=value, low=low, high=high, unit=METRICS[name].unit)


def _energy_by_gpu(records: Sequence[Record]) -> dict[str, float]:
    """UUID to joules of one step, the mean over attempts that know it."""
    found: dict[str, list[float]] = {}
    for record in records:
        for gpu in record.energy.gpus if record.energy else ():
            if gpu.energy_j is not None:
                found.setdefault(gpu.uuid, []).append(gpu.energy_j / len(record.ranks[0].steps))
    return {uuid: sum(values) / len(values) for uuid, values in found.items()}


def _flags(good: Sequence[Record], samples: dict[str, Samples]) -> tuple[str, ...]:
    flags: list[str] = []
    if len(good) == 1:
        flags.append("single_attempt")
    if any(rank.steady is False for record in good for rank in record.ranks[:1]):
        flags.append("not_steady")
    if "step_s" in samples and outlying_attempts(samples["step_s"]):
        flags.append("outlying_attempt")
    energies = [gpu for record in good if record.energy for gpu in record.energy.gpus]
    return (*flags, *sorted({flag for gpu in energies for flag in gpu.flags}))


def _skipped(skip: Skip) -> PointResult:
    return PointResult(
        id=skip.id,
        benchmark=skip.benchmark,
        axes=skip.axes,
        status="skipped",
        reason=skip.reason,
        num_gpus=skip.num_gpus,
        attempts=0,
        failed_attempts=0,
        metrics={},
        energy_by_gpu_j={},
    )


def _of(point_id: str, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.point_id == point_id]
