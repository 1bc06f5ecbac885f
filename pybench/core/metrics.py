"""Every metric of a record, whatever its workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean

from pybench.core import generate_metrics, train_metrics, turn_metrics
from pybench.core.joint_step import JointStep, joint_spans, joint_steps
from pybench.model.record import Energy, Record
from pybench.model.suite import Point
from pybench.model.workloads.checkpoint import LOAD, SAVE
from pybench.model.workloads.registry import METRICS_OF
from pybench.model.workloads.settings import WorkloadName
from pybench.model.workloads.traits import OverRanks


@dataclass(frozen=True)
class Formulas:
    """One workload's formulas; a workload whose ranks report all metrics needs none.

    ``of_step`` returns metrics of a step. ``of_attempt`` returns metrics of all steps and of the ranks' reports.
    ``of_energy`` returns metrics made of joules. ``shares`` returns divisors of joules by the name of the metric.
    """

    of_step: Callable[[Point, JointStep], dict[str, float | None]] = lambda _point, _step: {}
    shares: Callable[[Point, Sequence[JointStep]], dict[str, float]] = lambda _point, _steps: {}
    of_attempt: Callable[[Point, Sequence[JointStep], Mapping[str, float]], dict[str, float]] = (
        lambda _point, _steps, _reported: {}
    )
    of_energy: Callable[[Point, Sequence[JointStep], Energy], dict[str, float | None]] = (
        lambda _point, _steps, _energy: {}
    )


def checkpoint_step(_point: Point, step: JointStep) -> dict[str, float | None]:
    """Lengths of saving and loading over all ranks, and the bytes of the files over them."""
    sizes = [rank.values["checkpoint_bytes"] for rank in step.ranks if "checkpoint_bytes" in rank.values]
    lengths_s = {span.name: (span.end_ns - span.start_ns) / 1e9 for span in joint_spans(step.ranks)}
    save_s, load_s = lengths_s.get(SAVE), lengths_s.get(LOAD)
    return {
        "save_s": save_s,
        "load_s": load_s,
        "save_bytes_per_s": max(sizes) / save_s if sizes and save_s else None,
        "load_bytes_per_s": max(sizes) / load_s if sizes and load_s else None,
    }


FORMULAS: dict[WorkloadName, Formulas] = {
    "generate": Formulas(generate_metrics.of_step, generate_metrics.shares, of_energy=generate_metrics.of_energy),
    "train": Formulas(
        train_metrics.of_step,
        train_metrics.shares,
        of_attempt=train_metrics.of_attempt,
        of_energy=train_metrics.of_energy,
    ),
    "evaluate": Formulas(
        of_step=lambda _point, step: {"samples_per_s": step.first.work.samples / step.length_s},
        shares=lambda _point, steps: {"energy_j_per_sample": sum(step.first.work.samples for step in steps)},
    ),
    "turn": Formulas(turn_metrics.of_step, of_attempt=turn_metrics.of_attempt, of_energy=turn_metrics.of_energy),
    "checkpoint": Formulas(of_step=checkpoint_step),
}


def formulas_of(point: Point) -> Formulas:
    """The formulas of a point's workload."""
    return FORMULAS.get(point.settings.workload, Formulas())


_OVER_RANKS: dict[OverRanks, Callable[[Sequence[float]], float]] = {"max": max, "min": min, "mean": fmean, "sum": sum}


def metric_values(point: Point, record: Record) -> dict[str, tuple[float, ...]]:
    """Metrics of a good record: a value for each step, or one for the whole attempt. Unknown metrics are absent."""
    steps, of_steps = joint_steps(record), step_values(point, record)
    names = {name: None for values in of_steps for name in values}
    columns = {name: tuple([v for values in of_steps if (v := values.get(name)) is not None]) for name in names}
    reported = _over_ranks(point, [{metric.name: metric.value for metric in rank.metrics} for rank in record.ranks])
    of_attempt = {
        **reported,
        **formulas_of(point).of_attempt(point, steps, reported),
        **({} if record.startup_s is None else {"startup_s": record.startup_s}),
        **_nvlink(point, record, steps),
        **_energy(point, record, steps),
    }
    columns |= {name: (value,) for name, value in of_attempt.items()}
    return {name: values for name, values in columns.items() if values}


def step_values(point: Point, record: Record) -> tuple[dict[str, float | None], ...]:
    """Metrics of each measured step of a good record."""
    formulas = formulas_of(point)
    return tuple(
        {
            "step_s": step.length_s,
            **_over_ranks(point, [rank.values for rank in step.ranks]),
            **formulas.of_step(point, step),
        }
        for step in joint_steps(record)
    )


def _over_ranks(point: Point, reported: Sequence[dict[str, float]]) -> dict[str, float]:
    """Metrics that ranks reported themselves, joined as their traits declare."""
    joined: dict[str, float] = {}
    metrics = METRICS_OF[point.settings.workload]
    for name in {name: None for values in reported for name in values}:
        over_ranks = metrics[name].over_ranks if name in metrics else None
        if over_ranks is not None:
            joined[name] = _OVER_RANKS[over_ranks]([values[name] for values in reported if name in values])
    return joined


def _nvlink(point: Point, record: Record, steps: Sequence[JointStep]) -> dict[str, float]:
    """Bytes that all ranks together sent in a step; empty where a rank's are unknown."""
    sent = [metric.value for rank in record.ranks for metric in rank.metrics if metric.name == "nvlink_sent_bytes"]
    if len(sent) < len(record.ranks) or not steps:
        return {}
    length_s = fmean(step.length_s for step in steps)
    return {"nvlink_bytes": sum(sent), "nvlink_bytes_per_s_per_gpu": sum(sent) / length_s / point.num_gpus}


def _energy(point: Point, record: Record, steps: Sequence[JointStep]) -> dict[str, float]:
    joules = record.energy.energy_j if record.energy else None
    if record.energy is None or joules is None:
        return {}
    formulas = formulas_of(point)
    more = formulas.of_energy(point, steps, record.energy)
    # Each without the pauses of a dithered load, as its joules are.
    powers_w = [gpu.mean_power_w for gpu in record.energy.gpus if gpu.mean_power_w is not None]
    return {
        "energy_j": joules / len(steps),
        **({"mean_power_w": fsum(powers_w)} if len(powers_w) == len(record.energy.gpus) else {}),
        **{name: joules / share for name, share in formulas.shares(point, steps).items() if share},
        **{name: value for name, value in more.items() if value is not None},
    }
