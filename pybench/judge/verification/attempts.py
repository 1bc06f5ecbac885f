"""The journal's attempts held against the plan, the machine and each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from pybench.compute.measured_window import window_ns
from pybench.compute.schedule import pending, undecided
from pybench.model.machine import Machine
from pybench.model.manifest import Manifest
from pybench.model.plan_options import time_limit_text
from pybench.model.record import Record
from pybench.model.results import Results
from pybench.model.suite import Point
from pybench.model.verification import Discrepancy

# Wall clocks are stepped by a few seconds; records have whole ones.
_CLOCK_SLACK = timedelta(seconds=5)


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

    What a time limit may have left out is not checked: nothing shows whether it did.
    """
    owed = (*pending(manifest.plan.points, records), *undecided(manifest.plan.points, results.rows, records))
    for point, number in dict.fromkeys((point.id, number) for point, number in owed):
        text = "no record: a missing attempt, or an unfinished run, which pybench run --resume RUN finishes"
        yield without_record(manifest, f"{point}, attempt {number}", text, unfinished=unfinished)
    planned = manifest.plan.digests
    for line, record in enumerate(records, start=1):
        if planned.get(record.point_id) != record.point_digest:
            what = "other settings" if record.point_id in planned else "no point of the plan"
            yield Discrepancy(place=f"journal.jsonl:{line}", text=f"{attempt_label(record)} measured {what}")


def check_order(manifest: Manifest, records: Sequence[Record]) -> Iterator[Discrepancy]:
    """Attempts follow one another: on the wall clock, and in the steps of those on one boot."""
    begun = [(manifest.created_utc, "the run")]
    begun += [(record.started_utc, attempt_label(record)) for record in records]
    for (earlier, before), (later, after) in pairwise(begun):
        apart = _time(later), _time(earlier)
        if None in apart:
            yield Discrepancy(place=after, text=f"{later!r} is no time with its zone")
        elif apart[0] < apart[1] - _CLOCK_SLACK:  # type: ignore[operator]
            yield Discrepancy(place=after, text=f"began {later}, before {before} at {earlier}")
    measured = [record for record in records if record.ok and _has_steps(record)]
    for earlier_one, later_one in pairwise(measured):
        if _boots(earlier_one) == _boots(later_one) and _window(later_one)[0] < _window(earlier_one)[1]:
            text = (
                f"its steps begin before those of {attempt_label(earlier_one)} end: one of both was measured elsewhere"
            )
            yield Discrepancy(place=attempt_label(later_one), text=text)


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
        if record.ok and _has_steps(record) and (span_s := _span_s(record)) > record.duration_s:
            text = f"its steps span {span_s:.3f} s, it lasted {record.duration_s:.3f} s"
            yield Discrepancy(place=place, text=text)


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


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "no GPU"
