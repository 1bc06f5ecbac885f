"""The journal's attempts held against the plan, the machine and each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise

from pybench.core.schedule.attempts import pending, undecided
from pybench.evidence.values import Discrepancy
from pybench.model.machine import Machine
from pybench.model.manifest import MANIFEST_FILE, Manifest
from pybench.model.plan_options import time_limit_text
from pybench.model.record import Record
from pybench.model.results import Results
from pybench.model.suite import Point
from pybench.power.measured_window import window_ns

# Wall clocks are stepped by a few seconds; records have whole ones.
_CLOCK_SLACK = timedelta(seconds=5)
# From the name of a run's folder to its manifest: the worker's source is copied, packages are listed.
_PREPARING = timedelta(minutes=5)
# A run waits for its GPUs and hosts, but not for long; one that was resumed may begin at any time.
_WAITING = timedelta(days=1)
# Beyond a point's time limit: a worker is started before it, a killed one ends and a trace is written after it.
_ENDING_S = 600.0
_STAMP = "%Y%m%dT%H%M%SZ"


def attempt_label(record: Record) -> str:
    """The attempt in words."""
    return f"{record.point_id}, attempt {record.attempt}"


def without_record(manifest: Manifest, place: str, text: str, *, unfinished: bool) -> Discrepancy:
    """An attempt that ``text`` finds missing, or that a time limit may have kept from being recorded.

    A run that is ``unfinished`` still owes it.
    """
    limit_s = manifest.options.time_limit_s
    if limit_s is None:
        return Discrepancy(place=place, text=text, state="unfinished" if unfinished else "does not hold")
    text = f"no record: {time_limit_text(limit_s)} may have left no time for it"
    return Discrepancy(place=place, text=text, state="not checked")


def check_completeness(
    manifest: Manifest, records: Sequence[Record], results: Results, *, unfinished: bool
) -> Iterator[Discrepancy]:
    """Every attempt that the plan and its undecided rows call for is recorded, under the settings of the plan.

    What a time limit may have left out is not checked: nothing shows whether it did. It leaves out no attempt before
    one that was made, as a point's attempts are made in their order.
    """
    made: dict[str, set[int]] = {}
    for record in records:
        made.setdefault(record.point_id, set()).add(record.attempt)
    last = {point: max(numbers) for point, numbers in made.items()}
    for point, numbers in made.items():
        missing = next(number for number in count(1) if number not in numbers)
        if missing < last[point]:
            text = f"no record, though attempt {last[point]} has one"
            yield Discrepancy(place=f"{point}, attempt {missing}", text=text)
    owed = (*pending(manifest.plan.points, records), *undecided(manifest.plan.points, results.rows, records))
    for point, number in dict.fromkeys((point.id, number) for point, number in owed):
        if number < last.get(point, 0):
            continue
        text = "no record: a missing attempt, or an unfinished run, which pybench run --resume RUN finishes"
        yield without_record(manifest, f"{point}, attempt {number}", text, unfinished=unfinished)
    planned = manifest.plan.digests
    for line, record in enumerate(records, start=1):
        if planned.get(record.point_id) != record.point_digest:
            what = "other settings" if record.point_id in planned else "no point of the plan"
            yield Discrepancy(place=f"journal.jsonl:{line}", text=f"{attempt_label(record)} measured {what}")


def check_order(manifest: Manifest, records: Sequence[Record]) -> Iterator[Discrepancy]:
    """Attempts follow the run's creation and one another: on the wall clock, and in the steps of those on one boot."""
    yield from _check_creation(manifest, records)
    begun = [(manifest.created_utc, "the run")]
    begun += [(record.started_utc, attempt_label(record)) for record in records]
    for (earlier, before), (later, after) in pairwise(begun):
        apart = _time(later), _time(earlier)
        if None in apart:
            yield Discrepancy(place=after, text=f"{later!r} is no time with its zone")
        elif apart[0] < apart[1] - _CLOCK_SLACK:  # type: ignore[operator]
            yield Discrepancy(place=after, text=f"began {later}, before {before} at {earlier}")
    for one, other in pairwise(records):
        began, following = _time(one.started_utc), _time(other.started_utc)
        if began is None or following is None:
            continue
        if one.duration_s > (following - began + _CLOCK_SLACK).total_seconds():
            after = f"{attempt_label(other)} began {other.started_utc}"
            text = f"lasted {one.duration_s:.3f} s from {one.started_utc}, {after}"
            yield Discrepancy(place=attempt_label(one), text=text)
    measured = [record for record in records if record.ok and _has_steps(record)]
    for earlier_one, later_one in pairwise(measured):
        if _boots(earlier_one) == _boots(later_one) and _window(later_one)[0] < _window(earlier_one)[1]:
            text = (
                f"its steps begin before those of {attempt_label(earlier_one)} end: one of both was measured elsewhere"
            )
            yield Discrepancy(place=attempt_label(later_one), text=text)


def _check_creation(manifest: Manifest, records: Sequence[Record]) -> Iterator[Discrepancy]:
    """The run's id has its suite and when it was created, which is not long before the first attempt."""
    created = _time(manifest.created_utc)
    name = manifest.suite.name
    # Of runs that began in one second, all but the first have a number.
    found = re.fullmatch(rf"(\d{{8}}T\d{{6}}Z)-{re.escape(name)}(-\d+)?", manifest.run_id)
    stamped = _stamp(found[1]) if found else None
    if stamped is None:
        text = f"run_id: {manifest.run_id!r} is claimed, a run of this suite has its time and -{name}"
        yield Discrepancy(place=MANIFEST_FILE, text=text)
    elif created is not None and not -_CLOCK_SLACK <= created - stamped <= _PREPARING:
        text = f"created_utc: {manifest.created_utc} is claimed, its run_id is {manifest.run_id}"
        yield Discrepancy(place=MANIFEST_FILE, text=text)
    first = _time(records[0].started_utc) if records else None
    if created is not None and first is not None and first - created > _WAITING:
        text = (
            f"began {records[0].started_utc}, the run was created {manifest.created_utc}: "
            "nothing shows whether it was resumed so late"
        )
        yield Discrepancy(place=attempt_label(records[0]), text=text, state="not checked")


def _planned_gpus(manifest: Manifest, machines: Sequence[Machine], point: Point) -> set[str]:
    """The first GPUs of each of the point's hosts; none for a CPU point."""
    if manifest.device != "cuda":
        return set()
    hosts, each = machines[: point.settings.num_nodes], point.settings.num_gpus_per_node
    return {gpu.uuid for machine in hosts for gpu in machine.gpus[:each]}


def check_places(manifest: Manifest, records: Iterable[Record]) -> Iterator[Discrepancy]:
    """Each attempt ran on the GPUs of its point, in an image of the run, and no longer than it lasted."""
    machines = [host.machine for host in manifest.machines] or [manifest.machine]
    names = {gpu.uuid: gpu.name for machine in machines for gpu in machine.gpus}
    gpus = {point.id: _planned_gpus(manifest, machines, point) for point in manifest.plan.points}
    images = {image.id for image in manifest.container.images} if manifest.container else set()
    limits_s = {point.id: point.effort.time_limit_s for point in manifest.plan.points}
    for record in records:
        place = attempt_label(record)
        headers = [rank.header for rank in record.ranks]
        used = {uuid for header in headers for uuid in header.all_uuids}
        if record.ok and used != gpus.get(record.point_id, used):
            yield Discrepancy(
                place=place, text=f"ran on {_listed(used)}, its point on {_listed(gpus[record.point_id])}"
            )
        for header in headers:
            if header.device_uuid in names and header.device_name != names[header.device_uuid]:
                text = f"rank {header.rank} saw a {header.device_name}, the machine has a {names[header.device_uuid]}"
                yield Discrepancy(place=place, text=text)
        if record.container is not None and record.container.image_id not in images:
            yield Discrepancy(place=place, text=f"ran in image {record.container.image_id}, which the run has not")
        if record.ok and (record.container is None) != (manifest.container is None):
            yield Discrepancy(place=place, text="ran in a container or without one, unlike the run")
        yield from _check_duration(record, limits_s.get(record.point_id))


def _check_duration(record: Record, limit_s: float | None) -> Iterator[Discrepancy]:
    """Start-up and then the steps lie within the attempt; a process starts up once."""
    place, startup_s = attempt_label(record), record.startup_s
    # Steps and warm-up of other hosts are joined to the clock of the one that leads.
    slack_s = 2 * max((part.clock.bound_ns for part in record.hosts), default=0) / 1e9
    span_s = _span_s(record) if record.ok and _has_steps(record) else 0.0
    if startup_s is not None and record.warm_after:
        text = f"started up in {startup_s:.3f} s, in a process that had measured {record.warm_after[-1]} before"
        yield Discrepancy(place=place, text=text)
    elif startup_s is None and not record.warm_after and record.ok:
        yield Discrepancy(place=place, text="has no start-up, which its process must have had")
    elif startup_s is not None and startup_s < -slack_s:
        yield Discrepancy(place=place, text=f"started up in {startup_s:.3f} s, which no process does")
    elif (startup_s or 0.0) + span_s > record.duration_s + slack_s:
        begin = "" if startup_s is None else f"started up in {startup_s:.3f} s, "
        text = f"{begin}its steps span {span_s:.3f} s, it lasted {record.duration_s:.3f} s"
        yield Discrepancy(place=place, text=text)
    if limit_s is not None and record.duration_s > limit_s + _ENDING_S:
        text = (
            f"lasted {record.duration_s:.3f} s, its time limit is {limit_s:g} s: "
            "nothing shows whether it was suspended so long"
        )
        yield Discrepancy(place=place, text=text, state="not checked")


def _has_steps(record: Record) -> bool:
    return bool(record.ranks) and all(rank.steps for rank in record.ranks)


def _window(record: Record) -> tuple[int, int]:
    return window_ns([rank.steps for rank in record.ranks])


def _span_s(record: Record) -> float:
    start_ns, end_ns = _window(record)
    return (end_ns - start_ns) / 1e9


def _boots(record: Record) -> set[str]:
    return {rank.header.boot_id for rank in record.ranks}


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _stamp(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no GPU"
