"""Names a collective that hangs: which operation, which ranks entered it, which did not, and where those are.

A thread in each rank looks at torch's flight recorder once nothing was reported for the time limit. A rank whose last
operation has not ended since then writes down where it is; the others follow, also those that never entered it. The
failure of each rank contains the text of all. NCCL's and gloo's own timeouts name an operation at most.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import distributed
from torch._C import _distributed_c10d as c10d  # the recorder's only interface in Python
from torch.distributed import distributed_c10d

from pybench.model.wire import Failure
from pybench.worker.exchange import EventStream

FOLDER = "collectives"
# Ranks that stand still without the interpreter, stopped or in a loop of C, never write: the others wait this long.
_WAIT_FOR_OTHERS_S = 3.0
_MOST_POLL_S = 1.0
_RECORDERS = ("_dump_nccl_trace", "_dump_fr_trace")


@dataclass(frozen=True)
class Collective:
    """The last operation that a rank entered in one process group, ``number`` counted from 1 in that group."""

    group: str
    members: Sequence[int]
    operation: str
    number: int
    is_over: bool
    age_s: float


@dataclass(frozen=True)
class Place:
    """The place of a rank: its point, and its last collective of each group by name."""

    at: str
    last: dict[str, Collective] = field(default_factory=dict)


def recorded(now_ns: int) -> dict[str, Collective]:
    """The last collective of each group, from the flight recorder; ``now_ns`` is the time since the epoch."""
    last: dict[str, Collective] = {}
    groups = dict(distributed_c10d._world.pg_names)  # noqa: SLF001 - the recorder names groups so
    members = {str(name): tuple(distributed.get_process_group_ranks(group)) for group, name in groups.items()}
    for recorder in _RECORDERS:
        dump = getattr(c10d, recorder, None)
        trace: dict[str, Any] = pickle.loads(dump()) if dump else {}  # noqa: S301 - of this process
        for entry in trace.get("entries", ()):
            name, description = entry["process_group"]
            library, _, operation = entry["profiling_name"].partition(":")
            collective = Collective(
                group=f"group {name}" if description in {"", "undefined"} else str(description),
                members=members.get(name, ()),
                operation=operation or library,
                number=entry["collective_seq_id"] or entry["p2p_seq_id"],
                is_over=bool(entry["retired"]) or entry["state"] == "completed",
                age_s=(now_ns - entry["time_created_ns"]) / 1e9,
            )
            if collective.group not in last or collective.number >= last[collective.group].number:
                last[collective.group] = collective
    return last


def hanging(last: dict[str, Collective], limit_s: float) -> Collective | None:
    """The collective that a rank waits in for longer than ``limit_s``, the longest first."""
    waiting = [collective for collective in last.values() if not collective.is_over and collective.age_s > limit_s]
    return max(waiting, key=lambda collective: collective.age_s, default=None)


def account(places: dict[int, Place], gpus: dict[int, str], limit_s: float, local: range | None = None) -> str:
    """The collective that hangs, with the ranks that entered it and the others; ``gpus`` names each rank's GPU.

    A worker over hosts knows only the ranks of this host, ``local``.
    """
    waiting = {rank: stuck for rank, place in places.items() if (stuck := hanging(place.last, limit_s)) is not None}
    if not waiting:
        return f"a rank waited for another for {limit_s:g} s, and none of them waits any longer"
    first = min(waiting, key=lambda rank: -waiting[rank].age_s)
    hung = waiting[first]
    here = [rank for rank in hung.members if local is None or rank in local]
    last = {rank: place.last.get(hung.group) for rank, place in places.items()}
    absent = [r for r in here if r != first and not ((seen := last.get(r)) is not None and seen.number >= hung.number)]
    others = [rank for rank in here if rank not in absent]
    names = {rank: f"rank {rank} ({gpus.get(rank, 'unknown device')})" for rank in here}
    what = f"{hung.operation}, operation {hung.number} of {hung.group}, {places[first].at}"
    entered = f"entered by {', '.join(names[rank] for rank in others)}"
    if not absent and len(here) < len(hung.members):
        return f"{what}: {entered}, all of this host's; not over after {limit_s:g} s"
    if not absent:
        return f"{what}: {entered}, and not over after {limit_s:g} s"
    where = []
    for rank in absent:
        if (place := places.get(rank)) is None:
            place_text = "wrote nothing here: stopped, in code that holds the interpreter, or on another host"
        elif (seen := last[rank]) is None:
            place_text = f"is {place.at}, entered none before"
        else:
            place_text = f"is {place.at}, last entered {seen.operation}, operation {seen.number}"
        where.append(f"rank {rank} {place_text}")
    absent_text = ", ".join(names[rank] for rank in absent)
    return f"{what}: {entered}, not by {absent_text} within {limit_s:g} s ({'; '.join(where)})"


class CollectiveWatch:
    """One rank's thread. ``gpu`` names its device; it ends the process once something hangs."""

    def __init__(self, rank: int, world_size: int, gpu: str, events: EventStream, limit_s: float) -> None:
        self._rank, self._world_size = rank, world_size
        self._events = events
        self._limit_s = limit_s
        self._folder = events.path.parent / FOLDER
        self._gpu = gpu
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="collectives", daemon=True)
        self._main = threading.get_ident()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch until the end."""
        self._folder.mkdir(exist_ok=True)
        (self._folder / f"{self._rank}.gpu").write_text(self._gpu, encoding="utf-8")
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(min(_MOST_POLL_S, self._limit_s / 10)):
            quiet_s = (time.monotonic_ns() - self._events.last_ns) / 1e9
            hangs = quiet_s > self._limit_s and hanging(recorded(time.time_ns()), self._limit_s) is not None
            if hangs or any(self._folder.glob("*.json")):
                self._end()

    def _end(self) -> None:
        """Write where this rank is, wait for the others, report, and leave: that is what frees the others."""
        place = Place(self._events.at, recorded(time.time_ns()))
        whole = self._folder / f"{self._rank}.part"
        whole.write_text(json.dumps(asdict(place)), encoding="utf-8")
        whole.replace(whole.with_suffix(".json"))
        # The ranks of this host, by torchrun's environment.
        first = self._rank - int(os.environ.get("LOCAL_RANK", self._rank))
        local = range(first, first + int(os.environ.get("LOCAL_WORLD_SIZE", self._world_size)))
        self._wait_for("json", len(local))
        places: dict[int, Place] = {}
        for path in self._folder.glob("*.json"):
            values = json.loads(path.read_text(encoding="utf-8"))
            last = {name: Collective(**fields) for name, fields in values["last"].items()}
            places[int(path.stem)] = Place(values["at"], last)
        gpus = {int(path.stem): path.read_text(encoding="utf-8") for path in self._folder.glob("*.gpu")}
        stack = "".join(traceback.format_stack(sys._current_frames()[self._main]))  # noqa: SLF001 - of another thread
        message = account(places, gpus, self._limit_s, local)
        self._events.write(Failure(cause="collective_timeout", message=message, detail=stack))
        (self._folder / f"{self._rank}.reported").touch()
        self._wait_for("reported", len(places))  # the launcher ends all ranks as soon as one has left
        os._exit(1)

    def _wait_for(self, suffix: str, number: int) -> None:
        """Wait until ``number`` ranks have written such a file, but not for ever."""
        deadline = time.monotonic() + _WAIT_FOR_OTHERS_S
        while len(list(self._folder.glob(f"*.{suffix}"))) < number and time.monotonic() < deadline:
            time.sleep(0.05)
