"""Each GPU's sensors under load against those of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, median

from pybench.core.node.ranks import ALONE, PointRecords
from pybench.core.numbers import signed_percent
from pybench.model.record import Record
from pybench.model.results import NodeCheck
from pybench.model.verdict import Verdict
from pybench.model.workloads.registry import LOADS


@dataclass(frozen=True, kw_only=True)
class _Sensor:
    """A reading of a rank in an attempt, and how far from the others' it may be: above a positive limit, below else."""

    name: str
    noun: str
    unit: str
    limit: float
    read: Callable[[Record, int, str], float | None]

    def apart(self, value: float, others: float) -> float:
        """In the sensor's unit."""
        return value / others - 1 if self.unit == "fraction" else value - others

    def text(self, value: float) -> str:
        """With its sign."""
        return signed_percent(value) if self.unit == "fraction" else f"{value:+.0f} {self.unit}"

    def worse(self, value: float) -> float:
        """Grows with the distance to the wrong side."""
        return value if self.limit > 0 else -value


def sensors(point: PointRecords) -> Iterator[NodeCheck]:
    """Joules for the same work, temperature and clock of each GPU while it multiplies, against others of its kind."""
    if not point.on_gpu or point.point.num_gpus < 2 or not any(map(point.values, LOADS)):  # noqa: PLR2004 - alone
        return
    for sensor in _SENSORS:
        known = {rank: value for rank in range(point.point.num_gpus) if (value := _reading(point, sensor, rank))}
        if len(known) < point.point.num_gpus:
            yield _check(point, sensor, "all GPUs", None, "no_expectation", f"{sensor.noun}: unknown for some GPU")
            continue
        for alike in point.by_device(known):
            if len(alike) == 1:
                yield _check(point, sensor, point.name(alike[0]), None, "no_expectation", f"{sensor.noun}: {ALONE}")
            else:
                yield from _compare(point, sensor, {rank: known[rank] for rank in alike})


def _joules(record: Record, rank: int, uuid: str) -> float | None:
    """Power over speed: joules for a unit of work, whatever time it took."""
    gpus = record.energy.gpus if record.energy else ()
    power_w = next((gpu.mean_power_w for gpu in gpus if gpu.uuid == uuid), None)
    steps = record.ranks[rank].steps
    metric = next(name for name in LOADS if name in steps[0].values)
    return None if power_w is None else power_w / fmean(step.values[metric] for step in steps)


def _temperature_c(record: Record, _rank: int, uuid: str) -> float | None:
    return next((gpu.temperature_c for gpu in record.conditions if gpu.uuid == uuid), None)


def _clock_hz(record: Record, _rank: int, uuid: str) -> float | None:
    return next((gpu.sm_clock_hz for gpu in record.conditions if gpu.uuid == uuid), None)


_SENSORS = (
    # Boards' power sensors have gains of their own, about 5 % either way: two of them may be 10 % apart.
    _Sensor(name="power_at_equal_work", noun="joules for the same work", unit="fraction", limit=0.15, read=_joules),
    # In a row of air-cooled boards the last breathes what the first has warmed.
    _Sensor(name="temperature", noun="temperature", unit="°C", limit=15.0, read=_temperature_c),
    # As far as matmul throughput may be, which follows it.
    _Sensor(name="clock", noun="SM clock", unit="fraction", limit=-0.10, read=_clock_hz),
)


def _reading(point: PointRecords, sensor: _Sensor, rank: int) -> float | None:
    """Median over the attempts that know it."""
    uuid = point.uuid(rank) or ""
    known = [value for record in point.records if (value := sensor.read(record, rank, uuid)) is not None]
    return median(known) if known else None


def _compare(point: PointRecords, sensor: _Sensor, known: dict[int, float]) -> Iterator[NodeCheck]:
    apart = {
        rank: sensor.apart(value, median(other for place, other in known.items() if place != rank))
        for rank, value in known.items()
    }
    failing = [rank for rank in apart if sensor.worse(apart[rank]) > sensor.worse(sensor.limit)]
    for rank in failing or [max(apart, key=lambda rank: sensor.worse(apart[rank]))]:
        reason = f"{sensor.noun}: {sensor.text(apart[rank])} against the others, allowed {sensor.text(sensor.limit)}"
        yield _check(point, sensor, point.name(rank), apart[rank], "fail" if failing else "pass", reason)


def _check(
    point: PointRecords, sensor: _Sensor, subject: str, value: float | None, verdict: Verdict, reason: str
) -> NodeCheck:
    return NodeCheck(
        name=sensor.name,
        subject=subject,
        point_id=point.point.id,
        value=value,
        limit=sensor.limit,
        unit=sensor.unit,
        verdict=verdict,
        reason=reason,
    )
