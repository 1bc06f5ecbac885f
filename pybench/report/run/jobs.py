"""What a whole training job takes on each number of GPUs, as rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pybench.core.numbers import Scale, percent, plain, shared_scale, spread, with_spread
from pybench.model.results import Estimate, JobResult, Results
from pybench.model.text import plural

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
