"""One result for each point from its records, with time, joules and memory of its steps' phases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, median

from pybench.core.joint_step import joint_spans, joint_steps, phase_cuts_ns
from pybench.core.measurements import Measurements, grouped
from pybench.core.node_driver import gpu_states
from pybench.core.statistics.interval import Samples, estimate, location, medians, outlying_attempts
from pybench.core.validity import VERDICT_FLAGS, starvation
from pybench.model.manifest import time_limit_text
from pybench.model.record import GpuUse, Record
from pybench.model.results import Estimate, PhaseResult, PointResult
from pybench.model.suite import MEASURED_BY, Point
from pybench.model.wire import are_scattered, are_steady
from pybench.model.workloads.registry import METRICS
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_rules import STRATEGIES

INPUT_BOUND = 0.05
"""Share of a step spent on waiting for samples, above which a loader is what limits it."""
_STAGES_WAIT = 0.2
"""Share of a step that a pipeline's GPUs wait: with four microbatches for each equal stage it stays below."""


def summarize(measurements: Measurements, time_limit_s: float | None = None) -> tuple[PointResult, ...]:
    """One result for every point of the plan, measured or not, in the plan's order.

    ``time_limit_s`` is the run's: what it lacks is explained by it.
    """
    measured = tuple(_point_result(point, measurements, time_limit_s) for point in measurements.plan.points)
    return measured + tuple(
        PointResult(
            id=skip.id,
            benchmark=skip.benchmark,
            axes=skip.axes,
            status="does_not_fit" if (tried := len(measurements.attempts(skip.id))) else "skipped",
            reason=skip.reason,
            num_gpus=skip.num_gpus,
            attempts=tried,
            failed_attempts=tried,
            metrics={},
            energy_by_gpu_j={},
        )
        for skip in (*measurements.plan.skips, *measurements.plan.left_out)
    )


def _point_result(point: Point, measurements: Measurements, time_limit_s: float | None) -> PointResult:
    records, good = measurements.attempts(point.id), measurements.good(point.id)
    failures = [record.failure for record in records if record.failure]
    reason = None
    if not good:
        limit = "" if time_limit_s is None else f": the run had {time_limit_text(time_limit_s)}"
        reason = f"{failures[0].cause}: {failures[0].message}" if failures else f"not measured{limit}"
    samples, gpus = measurements.samples(point), gpu_use(good)
    logs = dict.fromkeys(record.log for record in good)
    sharing = (other.point_id for log in logs for other in measurements.by_log[log])
    is_short = any(len(record.ranks[0].steps) < point.effort.steps for record in good)
    return PointResult(
        id=point.id,
        benchmark=point.benchmark,
        axes=point.axes,
        status="ok" if good else "failed" if failures else "missing",
        reason=reason,
        num_gpus=point.num_gpus,
        attempts=len(records),
        failed_attempts=len(failures),
        metrics=_estimates(samples),
        energy_by_gpu_j=_energy_by_gpu(good),
        energy_phases=phase_results(good),
        flags=(
            *_flags(point, good, samples, gpus),
            *(("fewer_attempts",) if 0 < len(good) == len(records) < point.effort.attempts else ()),
            *(("fewer_steps",) if time_limit_s is not None and is_short else ()),
        ),
        # Other points with records of the same processes, in the order of their first measurement.
        shared_with=tuple(name for name in dict.fromkeys(sharing) if name != point.id),
        gpu_states=gpu_states(good),
        gpus=gpus,
        digest=point.digest,
        settings=point.settings.to_json(),
        effort={name: getattr(point.effort, name) for name in MEASURED_BY},
    )


def _estimates(samples: Mapping[str, Samples]) -> dict[str, Estimate]:
    """Of every metric. Sequences in lockstep share all percentiles, so equal samples have one estimate."""
    known = {values: (*estimate(values), tuple(medians(values))) for values in {*samples.values()}}
    return {
        name: Estimate(value=value, low=low, high=high, unit=METRICS[name].unit, medians=by_attempt)
        for name, (value, low, high, by_attempt) in ((name, known[values]) for name, values in samples.items())
    }


def _energy_by_gpu(records: Sequence[Record]) -> dict[str, float]:
    """UUID to joules of one step, the mean over attempts that know it."""
    by_gpu = grouped(
        (gpu.uuid, gpu.energy_j / len(record.ranks[0].steps))
        for record in records
        for gpu in (record.energy.gpus if record.energy else ())
        if gpu.energy_j is not None
    )
    return {uuid: sum(values) / len(values) for uuid, values in by_gpu.items()}


def _flags(
    point: Point, good: Sequence[Record], samples: Mapping[str, Samples], gpus: Sequence[GpuUse]
) -> tuple[str, ...]:
    first_ranks = [record.ranks[0] for record in good if record.ranks]
    settings = point.settings if isinstance(point.settings, Train) else None
    of_step = ("input_wait_fraction", "stage_idle_fraction")
    shares = {name: location(samples[name]) if name in samples else 0.0 for name in of_step}
    cautions = {
        "single_attempt": len(good) == 1,
        # Where a suite has few warm-up steps, the measured steps show it.
        "not_steady": any(
            rank.steady is False and not are_steady([step.duration_ns for step in rank.steps]) for rank in first_ranks
        ),
        "scattered_steps": any(are_scattered([step.duration_ns for step in rank.steps]) for rank in first_ranks),
        "outlying_attempt": "step_s" in samples and bool(outlying_attempts(samples["step_s"])),
        "kv_starved": starvation(point, samples) is not None,
        **{flag: traits.problem(good, samples) is not None for flag, traits in VERDICT_FLAGS.items()},
        "input_bound": shares["input_wait_fraction"] > INPUT_BOUND,
        # Strategies with stages but without microbatches wait by design.
        "stages_wait": settings is not None
        and STRATEGIES[settings.strategy].has_microbatches
        and shares["stage_idle_fraction"] > _STAGES_WAIT,
        "no_control_steps": settings is not None
        and settings.has_control_steps
        and bool(samples)
        and "exposed_communication_fraction" not in samples,
        "gpu_without_layers": any(gpu.num_layers == 0 for gpu in gpus),
    }
    energies = [gpu for record in good if record.energy for gpu in record.energy.gpus]
    of_joules = sorted({flag for gpu in energies for flag in gpu.flags})
    return (*(flag for flag, holds in cautions.items() if holds), *of_joules)


_LAYERS = re.compile(r"gpu_(\d{1,4})_layers")
_MEMORY = ("peak_memory_bytes", "peak_reserved_memory_bytes", "device_memory_used_bytes")


def gpu_use(records: Sequence[Record]) -> tuple[GpuUse, ...]:
    """One for each GPU that a rank or the sampler names, in the order of the ranks.

    A rank with several GPUs reports the memory of its fullest GPU. Memory of each GPU is then unknown; layers of each
    are known.
    """
    reported = [entry for record in records for entry in _reported(record)]
    most = {
        key: max(values) for key, values in grouped(((uuid, name), value) for uuid, name, value in reported).items()
    }
    conditions = [gpu for record in records for gpu in record.conditions]
    busy = grouped((g.uuid, g.utilization_fraction) for g in conditions if g.utilization_fraction is not None)
    return tuple(
        GpuUse(
            uuid=uuid,
            utilization_fraction=fmean(busy[uuid]) if uuid in busy else None,
            num_layers=None if (layers := most.get((uuid, "num_layers"))) is None else int(layers),
            **{name: most.get((uuid, name)) for name in _MEMORY},
        )
        for uuid in dict.fromkeys((*(uuid for uuid, *_ in reported), *busy))
    )


def _reported(record: Record) -> Iterator[tuple[str, str, float]]:
    for rank in record.ranks:
        uuids = rank.header.all_uuids
        for metric in rank.metrics:
            if (match := _LAYERS.fullmatch(metric.name)) and int(match[1]) < len(uuids):
                yield uuids[int(match[1])], "num_layers", metric.value
            elif len(uuids) == 1:
                yield uuids[0], metric.name, metric.value


def phase_results(records: Sequence[Record]) -> tuple[PhaseResult, ...]:
    """Each phase of one step: the location of its steps' times, means of the joules and of the sensor's bounds.

    Phases of the workload's reports need no sensor; prefill and decode need joules.
    """
    by_name = grouped((phase.name, phase) for record in records for phase in _of_attempt(record))
    return tuple(
        PhaseResult(
            name=name,
            duration_s=location([[phase.duration_s] for phase in phases]),
            energy_j=_mean(phase.energy_j for phase in phases),
            low_j=_mean(phase.low_j for phase in phases),
            high_j=_mean(phase.high_j for phase in phases),
            device_bytes=_most(phase.device_bytes for phase in phases),
            host_bytes=_most(phase.host_bytes for phase in phases),
            flags=tuple(sorted({flag for phase in phases for flag in phase.flags})),
        )
        for name, phases in by_name.items()
    )


def _of_attempt(record: Record) -> list[PhaseResult]:
    steps = joint_steps(record)
    spans = [joint_spans(step.ranks) for step in steps]
    reported = grouped((span.name, span) for of_step in spans for span in of_step)
    # A phase that a step has several times counts with all its time.
    of_steps = (grouped((span.name, (span.end_ns - span.start_ns) / 1e9) for span in of_step) for of_step in spans)
    durations_s = grouped((name, sum(times_s)) for of_step in of_steps for name, times_s in of_step.items())
    joules = {phase.name: phase for phase in record.energy.phases} if record.energy else {}
    if not reported and (steady := joules.get("steady")):
        durations_s = {"steady": [steady.duration_s / len(steps)]}
    elif not reported and joules:
        cuts_ns = [phase_cuts_ns(step.ranks) for step in steps]
        durations_s = {
            "prefill": [(cut - start) / 1e9 for start, cut, _ in cuts_ns],
            "decode": [(end - cut) / 1e9 for _, cut, end in cuts_ns],
        }
    per_step = 1 / len(steps) if steps else 0.0
    results = []
    for name, of_phase_s in durations_s.items():
        energy, phase_spans = joules.get(name), reported.get(name, ())
        bounds = [energy.energy_j, energy.energy_low_j, energy.energy_high_j] if energy else [None]
        known = [value * per_step for value in bounds if value is not None]
        if len(known) < len(bounds) and not reported:
            continue
        energy_j, low_j, high_j = known if len(known) == len(bounds) else (None, None, None)
        results.append(
            PhaseResult(
                name=name,
                duration_s=median(of_phase_s),
                energy_j=energy_j,
                low_j=low_j,
                high_j=high_j,
                device_bytes=_most(span.device_bytes for span in phase_spans),
                host_bytes=_most(span.host_bytes for span in phase_spans),
                flags=energy.flags if energy else (),
            )
        )
    return results


def _most(amounts: Iterable[float | None]) -> int | None:
    return max((int(amount) for amount in amounts if amount is not None), default=None)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
