"""Measurements of a run: its plan, the records of each point, and the values of every metric, computed once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import TypeVar

from pybench.core.metrics import metric_values
from pybench.core.statistics.interval import NoRatioError, Samples, logs
from pybench.core.statistics.spread import Spread, common_spread
from pybench.model.record import Energy, GpuEnergy, PhaseEnergy, Record
from pybench.model.suite import Plan, Point, Skip
from pybench.model.verdict import Verdict
from pybench.model.workloads.registry import METRICS, METRICS_OF

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

CORRELATION_OF_ENERGY = 0.6
"""Of joules of successive attempts: 0.36 of products and 0.55 of decodes on H100s. Speeds have none (-0.1 to 0.15)."""


@dataclass(frozen=True)
class Measurements:
    """One value for every judge. Metrics are evaluated when a point is first read, and kept.

    ``records`` are those of planned points, in the order they were recorded; :meth:`of` leaves others out.
    """

    plan: Plan
    records: tuple[Record, ...]
    _samples: dict[str, Mapping[str, Samples]] = field(default_factory=dict, repr=False, compare=False)
    _spreads: dict[str, Spread | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, plan: Plan, records: Iterable[Record]) -> Measurements:
        """Keep the records of points that ``plan`` has, measured with the settings that it has."""
        known = plan.digests
        return cls(plan, tuple(record for record in records if known.get(record.point_id) == record.point_digest))

    @property
    def entries(self) -> tuple[Point | Skip, ...]:
        """Every point of the suite: measured or not, skipped or left out."""
        return (*self.plan.points, *self.plan.skips, *self.plan.left_out)

    @cached_property
    def _by_point(self) -> Mapping[str, Sequence[Record]]:
        return grouped((record.point_id, record) for record in self.records)

    @cached_property
    def by_log(self) -> Mapping[str, Sequence[Record]]:
        """Records by their worker's log: one log is one process."""
        return grouped((record.log, record) for record in self.records)

    def attempts(self, point_id: str) -> tuple[Record, ...]:
        """Every record of a point, failed ones too."""
        return tuple(self._by_point.get(point_id, ()))

    def good(self, point_id: str) -> tuple[Record, ...]:
        """The records of a point's good attempts."""
        return tuple(record for record in self.attempts(point_id) if record.ok)

    def samples(self, entry: Point | Skip) -> Mapping[str, Samples]:
        """Values of every metric that any good attempt has; none for a point that can't run."""
        if isinstance(entry, Skip):
            return {}
        if entry.id not in self._samples:
            self._samples[entry.id] = metric_samples(entry, self.good(entry.id))
        return self._samples[entry.id]

    def measured(self, metric: str) -> Iterator[tuple[Point, Samples]]:
        """The points that have the metric, with its values."""
        for point in self.plan.points:
            if metric in METRICS_OF[point.settings.workload] and (samples := self.samples(point).get(metric)):
                yield point, samples

    def spread(self, metric: str) -> Spread | None:
        """Common spread of a metric between attempts, over all points; ``None`` if no point has two attempts."""
        if metric not in self._spreads:
            by_point: list[tuple[Point, list[float]]] = []
            for point, samples in self.measured(metric):
                with suppress(NoRatioError):  # not positive in every attempt
                    by_point.append((point, logs(samples)))
            more_follow = all(len(values) < point.effort.max_attempts for point, values in by_point)
            usual = CORRELATION_OF_ENERGY if METRICS[metric].is_of_energy else 0.0
            self._spreads[metric] = common_spread(
                [values for _, values in by_point], more_follow=more_follow, usual_correlation=usual
            )
        return self._spreads[metric]

    def boards(self, point_id: str) -> frozenset[str]:
        """UUIDs of the boards whose energy was measured."""
        records = self.good(point_id)
        return frozenset(gpu.uuid for record in records if record.energy for gpu in record.energy.gpus)

    def energy_bound(self, point_id: str, metric: str) -> float:
        """How far the truth may lie off joules as the sensors sampled them, a fraction, by the windows' bounds.

        Of a phase's joules the phase's windows; the mean over good attempts, 0 where no bound is known.
        """
        energies = [record.energy for record in self.good(point_id) if record.energy]
        bounds = [bound for energy in energies if (bound := _bound(energy, metric)) is not None]
        return fmean(bounds) if bounds else 0.0


def _bound(energy: Energy, metric: str) -> float | None:
    phase = next((phase for phase in energy.phases if metric.startswith(f"{phase.name}_energy")), None)
    windows: Sequence[PhaseEnergy | GpuEnergy] = energy.gpus if phase is None else (phase,)
    halves, joules = 0.0, 0.0
    for window in windows:
        if window.energy_j is None or window.energy_low_j is None or window.energy_high_j is None:
            return None
        halves += (window.energy_high_j - window.energy_low_j) / 2
        joules += window.energy_j
    return halves / joules if joules > 0 else None


def metric_samples(point: Point, good: Sequence[Record]) -> dict[str, Samples]:
    """Every metric's values in a point's good attempts: attempt by attempt, step by step.

    Metrics of a whole attempt (energy, memory, start-up) have one value for each. A metric that no attempt has is
    absent.
    """
    attempts = [metric_values(point, record) for record in good]
    names = METRICS_OF[point.settings.workload]
    pairs = ((name, tuple([values[name] for values in attempts if name in values])) for name in names)
    return {name: samples for name, samples in pairs if samples}


def grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, list[_Value]]:
    """All values of each key; keys and values keep their order."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def absence(entry: Point | Skip, metric: str, measurements: Measurements, of: str = "") -> tuple[Verdict, str] | None:
    """Verdict and reason, which ``of`` begins; ``None`` when the point has the metric."""
    if isinstance(entry, Skip):
        # A point that the user left out is not missing.
        return ("missing" if entry in measurements.plan.skips else "no_expectation"), of + entry.reason
    if metric in measurements.samples(entry):
        return None
    attempts = measurements.attempts(entry.id)
    failure = next((record.failure for record in attempts if record.failure), None)
    if attempts and not any(record.ok for record in attempts) and failure is not None:
        return "error", f"{of}{failure.cause}: {failure.message}"
    # No other metric is absent for want of a power sensor.
    reasons = (record.energy_reason for record in attempts if record.energy_reason and METRICS[metric].is_of_energy)
    return "missing", of + (next(reasons, "the metric was not measured") if attempts else "not measured")
