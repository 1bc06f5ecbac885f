"""The workers' own events read again, under the contract they were measured under, and held against the records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pybench.evidence.attempts import attempt_label
from pybench.evidence.values import Discrepancy
from pybench.files.json_values import decode_json
from pybench.files.safe_folder import read_below
from pybench.model.backend import BACKENDS
from pybench.model.host import HostPart
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.suite import Point
from pybench.model.wire import ORDERS_FILE, Event, FailureCause
from pybench.run.events.contract import Contract, Site
from pybench.run.events.reader import Check, EventReader, RankLog
from pybench.run.session import work_order

# Steps of attempts lie in the past by now, on whichever boot.
_LATEST_NS = 2**63 - 1
# Orders have some kilobytes each.
_MAX_ORDERS_BYTES = 2**26
# Ranks times attempts of a process: 256 attempts on 1024 ranks, which are the most that hosts have together.
_MOST_LOGS = 2**18
# Failures after which no rank's stream is whole; a worker may still be killed, or end badly, behind its last event.
_BEFORE_THE_END: frozenset[FailureCause] = frozenset(
    ("out_of_memory", "missing_package", "unsupported", "engine", "exception", "protocol", "launch")
)


def check_events(path: Path, manifest: Manifest, records: Sequence[Record]) -> Iterator[Discrepancy]:
    """Each worker process's stream gives the steps and values of its records, by the rules it was measured under."""
    points = {point.id: point for point in manifest.plan.points}
    by_log: dict[str, list[int]] = {}
    for number, record in enumerate(records):
        by_log.setdefault(record.log, []).append(number)
    for log, numbers in by_log.items():
        own = [records[number] for number in numbers]
        if any(record.point_id not in points for record in own):
            continue
        folder = (path / log).parent / "exchange"
        if Path(log).is_absolute() or ".." in Path(log).parts or not folder.is_dir():
            yield Discrepancy(place=attempt_label(own[0]), text=f"its worker's events are not there: {log}")
            continue
        before = [records[:number] for number in numbers]
        yield from _of_process(folder, manifest, points, own, before)


def _of_process(
    folder: Path,
    manifest: Manifest,
    points: dict[str, Point],
    records: Sequence[Record],
    before: Sequence[Sequence[Record]],
) -> Iterator[Discrepancy]:
    first = points[records[0].point_id].settings
    num_ranks = BACKENDS[first.backend].num_processes(first)
    if (fault := _wrong_ranks(records, num_ranks)) is not None:
        yield fault
        return
    orders, following, unread = _orders(folder, len(records))
    contracts = [
        _contract(manifest, points[record.point_id], record, earlier, num_ranks, _end_ns(manifest, orders, number))
        for number, (record, earlier) in enumerate(zip(records, before, strict=True))
    ]
    ahead_ns = [contracts[0].site(rank).joined.offset_ns for rank in range(num_ranks)]
    stopped = _stopped(following, points) if records[-1].ok else []
    earlier, end_ns = [*before[-1], records[-1]], contracts[-1].order.end_ns
    further = [_contract(manifest, point, records[-1], earlier, num_ranks, end_ns) for point in stopped]
    followed = [*contracts, *further]
    reader = EventReader(folder, num_ranks, len(followed), ahead_ns)
    if unread is None:
        yield from _ordered(orders, records, contracts)
    else:
        yield Discrepancy(place=attempt_label(records[0]), text=f"its worker's orders cannot be read: {unread}")
    yield from _warmth(records)
    for place, contract in enumerate(followed):
        reader.begin(place, _check(contract))
    try:
        reader.poll()
        problem = None
    except ValueError as error:
        problem = str(error)
    ended: Record | None = None
    for place, (record, contract) in enumerate(zip(records, contracts, strict=True)):
        if ended is not None:
            text = f"measured by the process of {attempt_label(ended)}, which failed: a process ends with that"
            yield Discrepancy(place=attempt_label(record), text=text)
        logs = reader.points[place]
        broken = contract.verify(logs)
        if record.failure is not None:
            if broken is None and problem is None and record.failure.cause in _BEFORE_THE_END:
                text = f"counts as failed ({record.failure.cause}), but its worker measured it to its end"
                yield Discrepancy(place=attempt_label(record), text=text)
            ended = record
            continue
        if broken is not None:
            text = f"its worker's events break the contract: {problem or broken.message}"
            yield Discrepancy(place=attempt_label(record), text=text)
            return
        yield from _compared(record, logs)


def _wrong_ranks(records: Sequence[Record], num_ranks: int) -> Discrepancy | None:
    """Where the records of a process are of other ranks than the plan's, or are more than any process has."""
    for record in records:
        # A failed attempt may have none of those that never introduced themselves.
        if len(record.ranks) > num_ranks or (record.ok and len(record.ranks) != num_ranks):
            text = f"{len(record.ranks)} ranks are recorded, the plan has {num_ranks}"
            return Discrepancy(place=attempt_label(record), text=text)
    if num_ranks * len(records) > _MOST_LOGS:
        text = f"the plan has {num_ranks} ranks for each of {len(records)} attempts, more than any worker process has"
        return Discrepancy(place=attempt_label(records[0]), text=text)
    return None


def _orders(folder: Path, num_attempts: int) -> tuple[list[Any], bytes, str | None]:
    """What the process was ordered for its attempts, and the orders that follow; or why these cannot be read."""
    try:
        data = read_below(folder, ORDERS_FILE, _MAX_ORDERS_BYTES)
        # What follows stays in one piece: each line of two bytes would take thirty times as much.
        *lines, rest = data.split(b"\n", num_attempts)
        if rest and len(lines) < num_attempts:
            lines, rest = [*lines, rest], b""
        return [decode_json(line) for line in lines], rest, None
    except OSError as error:
        return [], b"", error.strerror or str(error)
    except ValueError as error:
        return [], b"", str(error)


def _stopped(following: bytes, points: Mapping[str, Point]) -> list[Point]:
    """The point of the first order that follows the records: the process may have begun it before it was stopped."""
    begin = '{"point_id": '
    if not following.startswith(begin.encode()):
        return []
    return [p for p in points.values() if following.startswith(f"{begin}{json.dumps(p.id)},".encode())]


def _end_ns(manifest: Manifest, orders: Sequence[Any], number: int) -> int | None:
    """When the run's time was over, by the order: the manifest has its length, and a resumed run has it again."""
    if manifest.options.time_limit_s is None or number >= len(orders) or not isinstance(orders[number], dict):
        return None
    end_ns = orders[number].get("end_ns")
    return end_ns if isinstance(end_ns, int) else None


def _ordered(orders: Sequence[Any], records: Sequence[Record], contracts: Sequence[Contract]) -> Iterator[Discrepancy]:
    """The process was ordered what the plan has for each of its attempts, and perhaps more that it never reached."""
    for number, contract in enumerate(contracts):
        if list(orders[number : number + 1]) != [json.loads(contract.order.to_json())]:
            text = "its worker was ordered something else than the plan has"
            yield Discrepancy(place=attempt_label(records[number]), text=text)


def _warmth(records: Sequence[Record]) -> Iterator[Discrepancy]:
    """Each attempt names what its process had measured before."""
    for number, record in enumerate(records):
        if record.warm_after != tuple(before.point_id for before in records[:number]):
            text = "does not name what its worker had measured before"
            yield Discrepancy(place=attempt_label(record), text=text)


def _contract(
    manifest: Manifest, point: Point, record: Record, before: Sequence[Record], num_ranks: int, end_ns: int | None
) -> Contract:
    return Contract(
        order=work_order(point, manifest.device, before, end_ns),
        num_processes=num_ranks,
        sites=_sites(manifest, point, record),
        start_ns=0,
    )


def _sites(manifest: Manifest, point: Point, record: Record) -> tuple[Site, ...]:
    """The hosts as the manifest has them, each with its first rank's clock."""
    by_rank = {rank.header.rank: rank.header for rank in record.ranks}
    machines = {host.name: host.machine for host in manifest.machines}
    hosts = record.hosts or (HostPart(name="", ranks=(0, 1)),)
    sites = []
    for part in hosts:
        header = by_rank.get(part.ranks[0])
        gpus = [gpu.uuid for gpu in machines.get(part.name, manifest.machine).gpus[: point.settings.num_gpus_per_node]]
        site = Site(
            clock=(header.boot_id, header.time_offset_ns) if header else ("", 0),
            gpu_uuids=tuple(gpus) if manifest.device == "cuda" else (),
            joined=part.clock,
        )
        sites.append(site)
    return tuple(sites)


def _check(contract: Contract) -> Check:
    def check(rank: int, log: RankLog, event: Event, _now_ns: int) -> None:
        contract.check(rank, log, event, _LATEST_NS)

    return check


def _compared(record: Record, logs: Sequence[RankLog]) -> Iterator[Discrepancy]:
    place = attempt_label(record)
    found = tuple(report for log in logs if (report := log.report()))
    if len(found) != len(record.ranks):
        text = f"{len(record.ranks)} ranks are recorded, its worker's events have {len(found)}"
        yield Discrepancy(place=place, text=text)
        return
    for rank, (recorded, read) in enumerate(zip(record.ranks, found, strict=True)):
        for name, value in vars(recorded).items():
            if value != vars(read)[name]:
                text = f"rank {rank}: {name} {_change(value, vars(read)[name])} its worker's events"
                yield Discrepancy(place=place, text=text)


def _change(recorded: object, read: object) -> str:
    """Which entries of two tuples differ; of anything else only that it does."""
    if isinstance(recorded, tuple) and isinstance(read, tuple):
        if len(recorded) != len(read):
            return f"has {len(recorded)} entries, not {len(read)} as in"
        places = [index for index, pair in enumerate(zip(recorded, read, strict=True)) if pair[0] != pair[1]]
        return f"differ at {', '.join(map(str, places[:5]))} from"
    return "differs from"
