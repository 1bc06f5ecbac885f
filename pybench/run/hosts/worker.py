"""One worker over several hosts: its part here, and those that other hosts start, follow and end by order."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pybench.files.safe_folder import opened_folder, write_file
from pybench.model.container import ContainerRun
from pybench.model.errors import RunFolderError
from pybench.model.machine import HostClock, HostPart
from pybench.model.record import Health
from pybench.model.wire import ORDERS_FILE, events_file
from pybench.power.measured_window import HostTrace
from pybench.power.trace import PowerTrace
from pybench.power.trace_file import read_trace
from pybench.run.engines.base import Launch, Meeting
from pybench.run.engines.process import Worker
from pybench.run.hosts import messages
from pybench.run.hosts.messages import HostLink, HostLostError, Message
from pybench.run.hosts.rendezvous import held_port, on_network

BEAT_LIMIT_S = 30.0
"""A host with a worker sends a message every second; after this time without one it is lost."""
LIMIT_MARGIN_S = 60.0
"""A host ends a worker by itself, this long after the lead should have ended it."""
_MAX_EVENTS_BYTES = 2**30

StartHere = Callable[[Launch, Path], Worker]


@dataclass
class _Part:
    """One other host's part. ``code`` is ``None`` while it runs; its ``report`` and power ``trace`` come at its end."""

    link: HostLink
    first_rank: int
    clock: HostClock
    code: int | None = None
    problem: str = ""
    power_w: float | None = None
    num_bytes: int = 0
    report: messages.Report | None = None
    trace: bytes = b""


class HostsWorker:
    """A job's parts on all its places, which end ``limit_s`` and a margin later. Raises ``HostLostError``."""

    def __init__(
        self,
        job: Launch,
        log: Path,
        links: Sequence[HostLink | None],
        clocks: Sequence[HostClock],
        start_here: StartHere,
        limit_s: float,
    ) -> None:
        """Start all parts. Raises ``OSError`` where one can't be started, ``HostLostError``."""
        self._job, self._log, self._clocks = job, log, clocks
        self._here: Worker | None = None
        self._parts: list[_Part] = []
        self._is_over = False
        self._lost: HostLostError | None = None
        self._held = ExitStack()
        try:
            for number, meeting in enumerate(_meetings(links, self._held)):
                place, link = job.places[number], links[number]
                if link is None:
                    network = on_network(meeting.local_address, job.host_environment)
                    held = self._held.enter_context(held_port(meeting.local_address))
                    bound = replace(meeting, local_port=held.getsockname()[1])
                    self._here = start_here(job.part(place.host, bound, network), log)
                else:
                    self._parts.append(_Part(link, number * job.ranks_each, clocks[number]))
                    order = messages.Begin(
                        token=job.token,
                        orders=(job.exchange / ORDERS_FILE).read_text(encoding="utf-8"),
                        backend=job.backend,
                        gpu_uuids=place.gpu_uuids,
                        first_rank=number * job.ranks_each,
                        num_ranks=job.ranks_each,
                        node_rank=meeting.node_rank,
                        num_nodes=meeting.num_nodes,
                        address=meeting.address,
                        port=meeting.port,
                        limit_s=limit_s + LIMIT_MARGIN_S,
                    )
                    link.order(order)
            for part in self._parts:
                _require_begun(part.link)
        except BaseException:
            self.end()
            raise

    @property
    def failed_part(self) -> tuple[str, str] | None:
        """The other host whose part failed first, and what that host reported; ``None`` where none did."""
        return next(((part.link.name, part.problem) for part in self._parts if part.code), None)

    def power_w(self) -> float | None:
        """Newest power of all other hosts' GPUs together, ``None`` where one's is unknown."""
        known = [part.power_w for part in self._parts if part.power_w is not None]
        return sum(known) if len(known) == len(self._parts) else None

    def wait(self, timeout_s: float) -> int | None:
        """Exit code once a part has failed or all have ended, ``None`` while they run. Raises ``HostLostError``."""
        self._receive(timeout_s)
        codes = [part.code for part in self._parts]
        if self._here is not None:
            codes.append(self._here.wait(0))
        failed = next((code for code in codes if code), None)
        return failed if failed is not None else (None if None in codes else 0)

    def container(self) -> ContainerRun | None:
        """The container of the part here."""
        return None if self._here is None else self._here.container()

    def end(self) -> None:
        """End every part and take the hosts' reports. A second call does nothing."""
        if self._is_over:
            return
        self._is_over = True
        self._held.close()
        for part in self._parts:
            with suppress(HostLostError):
                part.link.order(messages.Stop())
        if self._here is not None:
            self._here.end()
        for part in self._parts:
            try:
                report, part.trace = self._report(part)
                part.clock = part.clock.over_time(part.link.clock())
            except HostLostError as error:
                self._lost = self._lost or error
                continue
            part.report = report
            with self._log.open("a", encoding="utf-8") as log:
                log.write(f"\n--- host {part.link.name} ---\n{report.log}\n{part.problem}")

    def host_parts(
        self, run_path: Path, folder: Path, local: PowerTrace | None, local_reason: str | None
    ) -> tuple[tuple[HostPart, ...], tuple[HostTrace, ...]]:
        """A part and the power of every place; other hosts' traces go below ``folder``. Raises ``HostLostError``."""
        if self._lost is not None:
            raise self._lost
        others = {part.link.name: part for part in self._parts}
        each = self._job.ranks_each
        parts, traces = [], []
        for number, place in enumerate(self._job.places):
            other = others.get(place.host)
            file = folder / ("trace.npz" if other is None else f"trace.{place.host}.npz")
            path = str(file.relative_to(run_path))
            trace, reason = (local, local_reason) if other is None else _kept(run_path, path, other)
            clock = self._clocks[number] if other is None else other.clock
            part = HostPart(
                name=place.host,
                ranks=(number * each, each),
                clock=clock,
                gpu_uuids=place.gpu_uuids,
                trace=path if trace else None,
                power_reason=None if trace else reason or "no GPU takes part",
            )
            parts.append(part)
            traces.append(HostTrace(place.gpu_uuids, trace, clock, here=other is None and trace is not None))
        return tuple(parts), tuple(traces)

    def health(self, local: Health | None) -> Health | None:
        """The drivers' counts of all hosts together; ``local`` are this host's."""
        known = [
            health
            for health in (local, *(part.report.health for part in self._parts if part.report))
            if health is not None
        ]
        if len(known) <= 1:
            return known[0] if known else None
        logs = [health.xids for health in known if health.xids is not None]
        return Health(
            before=tuple(counters for health in known for counters in health.before),
            after=tuple(counters for health in known for counters in health.after),
            links=tuple(link for health in known for link in health.links),
            xids=tuple(xid for log in logs for xid in log) if len(logs) == len(known) else None,
            others=tuple(process for health in known for process in health.others),
        )

    def _report(self, part: _Part) -> tuple[messages.Report, bytes]:
        """The part's report, behind whatever its worker still sent. Raises ``HostLostError``."""
        deadline = time.monotonic() + part.link.limit_s
        while (left_s := deadline - time.monotonic()) > 0:
            received = part.link.next(left_s)
            if received is not None and isinstance(received[0], messages.Report):
                return received[0], received[1]
            if received is not None:
                self._note(part, *received)
        raise HostLostError(f"host {part.link.name}: no report within {part.link.limit_s:g} s of its worker's end")

    def _receive(self, timeout_s: float) -> None:
        """Take all that hosts have sent, after waiting for the first of it."""
        running = [part for part in self._parts if part.code is None]
        if running:
            select.select([part.link.frames for part in running], [], [], timeout_s)
        elif self._here is not None:
            self._here.wait(timeout_s)
        for part in running:
            while (received := part.link.next(0)) is not None:
                self._note(part, *received)
            if part.code is None and time.monotonic() - part.link.heard_s > BEAT_LIMIT_S:
                raise HostLostError(f"host {part.link.name}: silent for {BEAT_LIMIT_S:g} s")

    def _note(self, part: _Part, message: Message, body: bytes) -> None:
        match message:
            case messages.Events():
                self._keep(part, message.rank, body)
            case messages.Beat():
                part.power_w = message.power_w
            case messages.Ended():
                part.code, part.problem = message.code, message.problem
            case _:
                kind = type(message).__name__.lower()
                raise HostLostError(f"host {part.link.name}: sent a {kind} while its worker ran")

    def _keep(self, part: _Part, rank: int, lines: bytes) -> None:
        """Add to the file of a rank, as if it were here. The worker here may have put anything in its place."""
        part.num_bytes += len(lines)
        if not 0 <= rank - part.first_rank < self._job.ranks_each or part.num_bytes > _MAX_EVENTS_BYTES:
            raise HostLostError(f"host {part.link.name}: sent events of rank {rank}, which is another host's")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(self._job.exchange / events_file(rank), flags, 0o644)
        with os.fdopen(file, "wb") as stream:
            stream.write(lines)


def _kept(run_path: Path, name: str, part: _Part) -> tuple[PowerTrace | None, str | None]:
    """A host's trace, written to the file ``name`` below the run's folder, or why there is none."""
    if not part.trace:
        return None, part.report.power_reason if part.report else None
    with opened_folder((run_path / name).parent) as opened:
        write_file(opened, (run_path / name).name, part.trace)
    try:
        return read_trace(run_path, name), None
    except RunFolderError as error:
        return None, str(error)


def joined_parts(run_path: Path, parts: Sequence[HostPart], local: PowerTrace) -> tuple[HostTrace, ...]:
    """Each host's power, ``local`` or read from the run's folder; no ``parts``: one host. Raises ``RunFolderError``."""
    joined = []
    for part in parts:
        here = part.trace is not None and Path(part.trace).name == "trace.npz"
        trace = local if here else None if part.trace is None else read_trace(run_path, part.trace)
        joined.append(HostTrace(part.gpu_uuids, trace, part.clock, here=here))
    return tuple(joined) or (HostTrace((), local),)


def _meetings(links: Sequence[HostLink | None], held: ExitStack) -> list[Meeting]:
    """Each place's meeting with the others; a port of this host is in ``held``. Raises ``OSError``."""
    between = next(link for link in links if link is not None).frames
    first = links[0]
    if first is None:
        address = between.local_address
        port = held.enter_context(held_port(address)).getsockname()[1]
    else:
        first.order(messages.FindPort())
        address, port = first.frames.address, first.answer(messages.FoundPort)[0].port
    addresses = [between.local_address if link is None else link.frames.address for link in links]
    whole = Meeting(num_nodes=len(links), node_rank=0, address=address, port=port, local_address=address)
    return [replace(whole, node_rank=number, local_address=local) for number, local in enumerate(addresses)]


def _require_begun(link: HostLink) -> None:
    begun, _ = link.answer(messages.Begun)
    if begun.problem:
        raise OSError(0, f"host {link.name}: {begun.problem}")
