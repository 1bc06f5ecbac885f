"""Event files of a wrong or hostile worker: refused with a reason or accepted, never a crash.

Bytes are changed at random from a seed, values on purpose. Each accepted record goes to a journal and back.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pybench.core.metrics import metric_values
from pybench.files.run.journal import decode_line, encode_line
from pybench.model.record import Record
from pybench.model.suite import Effort, Point
from pybench.model.wire import Event, Failure, Work, WorkOrder, encode_event, events_file
from pybench.run.events.contract import Contract
from pybench.run.events.reader import EventReader
from tests.builders import TINY
from tests.run.attempt_events import (
    MS,
    ORDER,
    TURN_ORDER,
    TURN_WORK,
    UUIDS,
    WORK,
    contract,
    good_events,
    turn_events,
)

FILES_PER_SEED = 500


@dataclass(frozen=True)
class Honest:
    """An attempt as an honest worker makes it: the files to change."""

    order: WorkOrder
    work: Work
    events: Callable[[int, int], list[Event]]

    def contract(self) -> Contract:
        """An attempt that began a second ago."""
        return contract(self.order)

    def lines_of(self, rank: int, start_ns: int) -> list[bytes]:
        """A rank's file."""
        return [encode_event(event).encode() for event in self.events(rank, start_ns)]


GENERATE = Honest(ORDER, WORK, good_events)
TURN = Honest(TURN_ORDER, TURN_WORK, turn_events)


def outcome(exchange: Path, kept: Contract, files: list[bytes]) -> tuple[Record, bool]:
    """The record of an attempt whose ranks wrote these files, and whether it counts as measured."""
    for rank, data in enumerate(files):
        file = exchange / events_file(rank)
        file.unlink(missing_ok=True)  # ext4 writes a file that was truncated to the disk at once, which takes 3 ms
        file.write_bytes(data)
    reader = EventReader(exchange, len(files), 1)
    reader.begin(0, kept.check)
    ranks = reader.points[0]
    try:
        reader.poll()
        failure = next((log.failure for log in ranks if log.failure), None) or kept.verify(ranks)
    except ValueError as error:
        failure = Failure(cause="protocol", message=str(error))
    record = Record(
        point_id="p",
        point_digest="d",
        attempt=1,
        started_utc="2026-11-21T08:15:00+00:00",
        duration_s=1.0,
        startup_s=None,
        ranks=tuple(report for log in ranks if (report := log.report())),
        failure=failure,
        energy=None,
        energy_reason="no GPU takes part",
        log="worker.log",
        trace=None,
        argv=(),
    )
    return record, failure is None


def assert_readable(record: Record) -> None:
    """No journal is written that its own reader refuses."""
    line = encode_line(record, 1)
    assert line.count(b"\n") == 1
    assert decode_line(Path("journal.jsonl"), 1, line[:-1]) == record


def assert_no_lie(record: Record, kept: Contract, honest: Honest = GENERATE) -> None:
    """Accepted steps match the order, by other code than the contract's, and can be judged."""
    assert len(record.ranks) == 2
    for rank, report in enumerate(record.ranks):
        header = report.header
        assert (header.rank, header.world_size, header.boot_id, header.device) == (rank, 2, "boot", "cuda")
        assert set(header.all_uuids) <= set(UUIDS)
        assert [step.index for step in report.steps] == [1, 2]
        assert [step.work for step in report.steps] == [honest.work] * honest.order.steps
        times = [time for step in report.steps for time in (step.start_ns, step.end_ns)]
        assert all(earlier <= later for earlier, later in pairwise(times))
        assert kept.start_ns <= times[0]
        assert times[-1] <= kept.start_ns + 3600 * 1000 * MS
        assert all(step.end_ns > step.start_ns for step in report.steps)
        assert report.warmup_steps == 1
        assert {metric.name: metric.unit for metric in report.metrics}.items() <= {("peak_memory_bytes", "bytes")}
        assert all(abs(value) <= 1e60 for step in report.steps for value in step.values.values())
    assert record.ranks[0].header.all_uuids != record.ranks[1].header.all_uuids
    point = Point(id="p", benchmark="b", axes={}, settings=honest.order.settings, effort=Effort(), architecture=TINY)
    assert all(math.isfinite(value) for values in metric_values(point, record).values() for value in values)


SPLICES = (b"9", b"-", b"e9", b"\0", b"\xff", b'"', b"{", b"[", b"NaN", b"\n")


def with_changed_lines(numbers: random.Random, lines: list[bytes]) -> list[bytes]:
    """A line repeated, exchanged with another, removed or inserted."""
    lines = list(lines)
    at, other = numbers.randrange(len(lines)), numbers.randrange(len(lines))
    match numbers.randrange(4):
        case 0:
            lines[at] = lines[other]
        case 1:
            lines[at], lines[other] = lines[other], lines[at]
        case 2:
            lines.insert(at, lines[other])
        case _:
            lines[at : at + 1] = []
    return lines or [b""]


def with_changed_bytes(numbers: random.Random, lines: list[bytes]) -> list[bytes]:
    """A line cut, spliced, shortened by a byte, given another digit, or with a bit flipped."""
    lines = list(lines)
    at = numbers.randrange(len(lines))
    line = bytearray(lines[at] or b" ")
    place = numbers.randrange(len(line))
    match numbers.randrange(6):
        case 0:
            del line[place:]
        case 1:
            line[place:place] = numbers.choice(SPLICES)
        case 2:
            del line[place]
        case 3:
            line[place] = numbers.choice(b"0123456789")
        case _:
            line[place] ^= 1 << numbers.randrange(8)
    lines[at] = bytes(line)
    return lines


def mutated(numbers: random.Random, lines: list[bytes]) -> bytes:
    """A file with one to three changes."""
    for _ in range(numbers.randint(1, 3)):
        lines = numbers.choice((with_changed_lines, with_changed_bytes))(numbers, lines)
    return b"\n".join(lines) + numbers.choice((b"\n", b"\n", b""))


def check_changed_bytes(tmp_path: Path, seed: int, honest: Honest = GENERATE) -> None:
    """500 files."""
    numbers = random.Random(seed)
    kept = honest.contract()
    good = [honest.lines_of(rank, kept.start_ns) for rank in range(2)]
    whole = [b"\n".join(lines) + b"\n" for lines in good]
    taken = 0
    for _ in range(FILES_PER_SEED):
        rank = numbers.randrange(2)
        files = list(whole)
        files[rank] = mutated(numbers, good[rank])
        record, measured = outcome(tmp_path, kept, files)
        assert_readable(record)
        taken += measured
        if measured:
            assert_no_lie(record, kept, honest)
    assert 0 < taken < FILES_PER_SEED / 2, "some changes are harmless, most are not"


HOSTILE = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            "",
            "x",
            "1",
            -1,
            0,
            1,
            2**31,
            2**63,
            2**64,
            10**30,
            -(2**70),
            1e308,
            1e-308,
            [],
            {},
            [1],
            {"a": 1},
        ]
    ),
    st.floats(),
    st.integers(),
    st.text(max_size=20),
)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every value inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(leaf for key, item in inside for leaf in leaves(item, (*path, key)))]


def check_changed_values(tmp_path: Path, data: st.DataObject, honest: Honest = GENERATE) -> None:
    """Any value of any event is exchanged for a hostile one, or gains a key."""
    kept = honest.contract()
    good = [honest.lines_of(rank, kept.start_ns) for rank in range(2)]
    rank = data.draw(st.integers(0, 1))
    number = data.draw(st.integers(0, len(good[rank]) - 1))
    event = json.loads(good[rank][number])
    path = data.draw(st.sampled_from(leaves(event)[1:]))
    holder = event
    for key in path[:-1]:
        holder = holder[key]
    if isinstance(holder, dict) and data.draw(st.integers(0, 9)) == 0:
        holder[data.draw(st.text(max_size=8))] = data.draw(HOSTILE)
    else:
        holder[path[-1]] = data.draw(HOSTILE)
    good[rank][number] = json.dumps(event).encode()
    record, measured = outcome(tmp_path, kept, [b"\n".join(lines) + b"\n" for lines in good])
    assert_readable(record)
    if measured:
        assert_no_lie(record, kept, honest)
