"""The leading host gathers the others."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import combinations
from queue import Empty, SimpleQueue
from threading import Event, Thread

from pybench import __version__
from pybench.machine.device_lock import lock_names
from pybench.model.errors import MachineError
from pybench.model.machine import Host, HostClock, Place
from pybench.model.text import counted
from pybench.run.engines.base import Notify
from pybench.run.hosts.frames import HANDSHAKE_LIMIT_S, ConnectionLostError, Frames
from pybench.run.hosts.messages import PROTOCOL, Goodbye, Hello, HostLink, HostLostError, Message, Welcome, decode, send
from pybench.run.hosts.rendezvous import Rendezvous

_SLICE_S, _PAUSE_S = 0.1, 0.02
_MAX_PENDING = 64
_ROOM_AFTER_S = 1.0
"""Among ``_MAX_PENDING`` connections the oldest is closed at this age; a host that joins takes milliseconds."""
_MOST_NAMED = 3


@dataclass
class Gathering:
    """This host, which leads, and the ``links`` to all others, in the order of their names."""

    lead: Host
    links: tuple[HostLink, ...] = field(default_factory=tuple)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """All hosts; the lead comes first."""
        return (self.lead, *(link.host for link in self.links))

    def link(self, name: str) -> HostLink | None:
        """The way to the host called ``name``; ``None`` for the lead itself."""
        return next((link for link in self.links if link.name == name), None)

    def clocks(self, places: Sequence[Place]) -> tuple[HostClock, ...]:
        """Each place's clock less this host's, measured now. Raises ``HostLostError``."""
        links = (self.link(place.host) for place in places)
        return tuple(HostClock() if link is None else link.clock() for link in links)

    def places(self, num_nodes: int, gpus_each: int, *, on_gpus: bool) -> tuple[Place, ...]:
        """The first hosts with the first GPUs of each; one host alone is the lead."""
        chosen = self.hosts[:num_nodes]
        return tuple(Place(host=host.name, gpu_uuids=host.gpu_uuids[:gpus_each] if on_gpus else ()) for host in chosen)

    def dismiss(self, problem: str = "") -> None:
        """Let every host go, with what went wrong, if anything did."""
        for link in self.links:
            with suppress(HostLostError):
                link.order(Goodbye(problem=problem))
            link.frames.close()


def gather(rendezvous: Rendezvous, listener: socket.socket, lead: Host, secret: bytes, notify: Notify) -> Gathering:
    """Wait for all hosts. Raises ``MachineError`` with a line for each that is missing or not like the first."""
    gathering = Gathering(lead)
    walls_s, locks = [0.0], [(lead.name, lock_names(lead.gpu_uuids))]
    try:
        with closing(_Door(listener, secret)) as door:
            for frames, hello, wall_s in _arrivals(door, rendezvous, gathering, notify):
                gathering.links = (*gathering.links, HostLink(hello.host, frames))
                walls_s.append(wall_s)
                locks.append((hello.host.name, hello.locks))
                notify(f"host {hello.host.name} joined, {len(gathering.hosts)} of {rendezvous.num_nodes}")
        _require_alike(gathering.hosts, walls_s, locks)
        gathering.links = tuple(sorted(gathering.links, key=lambda link: link.name))
        for link in gathering.links:
            link.order(Welcome(lead=lead.name))
    except BaseException as error:
        gathering.dismiss(str(error) or "the host that leads was interrupted")
        raise
    return gathering


def _require_alike(hosts: Sequence[Host], walls_s: Sequence[float], locks: Sequence[tuple[str, Sequence[str]]]) -> None:
    if lines := (*unlike(hosts, walls_s), *on_one_device(locks)):
        raise MachineError("\n".join(lines))


def _arrivals(
    door: _Door, rendezvous: Rendezvous, gathering: Gathering, notify: Notify
) -> Iterator[tuple[Frames, Hello, float]]:
    """Hosts as they join, each with its wall clock less this one's in s. Raises ``MachineError``."""
    deadline_s = time.monotonic() + rendezvous.limit_s
    refused: dict[str, str] = {}
    while len(gathering.hosts) < rendezvous.num_nodes:
        try:
            arrival = door.arrivals.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except Empty:
            raise _missing(rendezvous, gathering, refused) from None
        if arrival.frames is None:
            if refused.get(arrival.address) != arrival.problem:
                notify(f"{arrival.address}: refused: {arrival.problem}")
            refused[arrival.address] = arrival.problem
            if time.monotonic() > deadline_s:
                raise _missing(rendezvous, gathering, refused)
        elif arrival.hello is None:
            arrival.dismiss(arrival.problem)
            raise MachineError(arrival.problem)
        else:
            yield arrival.frames, arrival.hello, arrival.wall_s


def _missing(rendezvous: Rendezvous, gathering: Gathering, refused: Mapping[str, str]) -> MachineError:
    there = ", ".join(host.name for host in gathering.hosts)
    also = "".join(f"; refused: {address}: {problem}" for address, problem in [*refused.items()][-_MOST_NAMED:])
    return MachineError(
        f"{rendezvous}: {len(gathering.hosts)} of {rendezvous.num_nodes} hosts have joined within "
        f"{rendezvous.limit_s:g} s ({there}{also}); start the same command on the others, or check the network"
    )


@dataclass(frozen=True, kw_only=True)
class _Arrival:
    """What came of one connection: a host's first message, else the ``problem``.

    ``frames`` is ``None`` where the other side did not prove that it knows the secret. ``wall_s`` is the host's wall
    clock less this one's.
    """

    address: str
    frames: Frames | None = None
    hello: Hello | None = None
    wall_s: float = 0.0
    problem: str = ""

    def dismiss(self, problem: str) -> None:
        """Tell the host why it can't take part, and close the connection."""
        if self.frames is not None:
            with closing(self.frames) as frames, suppress(ConnectionLostError):
                send(frames, Goodbye(problem=problem))


class _Door:
    """Takes connections of a ``listener`` and shakes hands with each in a thread of its own, until it is closed.

    A connection that sends nothing holds up nobody: at most ``_MAX_PENDING`` shake hands at a time, and where all of
    them only hold on, the oldest makes room.
    """

    def __init__(self, listener: socket.socket, secret: bytes) -> None:
        self.arrivals: SimpleQueue[_Arrival] = SimpleQueue()
        self._listener, self._secret = listener, secret
        self._pending: dict[socket.socket, float] = {}
        self._is_closed = Event()
        self._accepts = Thread(target=self._accept, name="pybench-door", daemon=True)
        self._accepts.start()

    def close(self) -> None:
        """Listen no more; connections that have not joined by now are closed."""
        self._is_closed.set()
        self._accepts.join()
        self._listener.close()
        for connection in tuple(self._pending):
            _shut(connection)
        with suppress(Empty):
            while True:
                self.arrivals.get_nowait().dismiss("all hosts of the run have joined without this one")

    def _accept(self) -> None:
        self._listener.settimeout(_SLICE_S)
        while not self._is_closed.is_set():
            try:
                connection, (address, *_) = self._listener.accept()
            except OSError:  # nobody came, or there is no file descriptor left for now
                self._is_closed.wait(_PAUSE_S)
                continue
            self._pending[connection] = time.monotonic()
            Thread(target=self._meet, args=(connection, str(address)), daemon=True).start()
            while len(self._pending) >= _MAX_PENDING and not self._is_closed.wait(_PAUSE_S):
                oldest, since_s = min(tuple(self._pending.items()), key=lambda item: item[1])
                if time.monotonic() - since_s > _ROOM_AFTER_S:
                    _shut(oldest)

    def _meet(self, connection: socket.socket, address: str) -> None:
        try:
            arrival = self._met(connection, address)
        except (OSError, ConnectionLostError) as error:
            arrival = _Arrival(address=address, problem=str(error))
        self._pending.pop(connection)
        self.arrivals.put(arrival)

    def _met(self, connection: socket.socket, address: str) -> _Arrival:
        frames = Frames(connection, self._secret, is_lead=True)
        frame = frames.take(HANDSHAKE_LIMIT_S)
        if frame is None:
            frames.close()
            return _Arrival(address=address, problem=f"it sent nothing within {HANDSHAKE_LIMIT_S:g} s")
        try:
            hello: Message | None = decode(frame[0])
        except ConnectionLostError:
            hello = None
        if not isinstance(hello, Hello) or hello.protocol != PROTOCOL:
            install = f"install {__version__} on all hosts"
            problem = f"the host at {address} has another version of pybench; {install}"
            return _Arrival(address=address, frames=frames, problem=problem)
        return _Arrival(address=address, frames=frames, hello=hello, wall_s=hello.wall_s - time.time())


def _shut(connection: socket.socket) -> None:
    """End what a thread waits for on ``connection``, which that thread closes."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


WALL_CLOCK_LIMIT_S = 5.0
"""Logs and the driver's errors are matched by the wall clock; hosts under NTP agree to milliseconds."""


def unlike(hosts: Sequence[Host], wall_offsets_s: Sequence[float]) -> tuple[str, ...]:
    """A line for each difference from the first host, also in wall clocks, given as offsets from it."""
    first, *others = hosts
    names = Counter(host.name for host in hosts).items()
    lines = [
        f"{count} hosts are called {name}; give each its own with PYBENCH_HOST_NAME"
        for name, count in names
        if count > 1
    ]
    for host, wall_s in zip(others, wall_offsets_s[1:], strict=True):
        for noun, here, there, remedy in _compared(first, host):
            if here != there:
                lines.append(f"host {host.name}: {noun} {there or 'none'}, {first.name} has {here or 'none'}; {remedy}")
        if abs(wall_s) > WALL_CLOCK_LIMIT_S:
            ahead = "ahead of" if wall_s > 0 else "behind"
            lines.append(
                f"host {host.name}: its wall clock is {abs(wall_s):.0f} s {ahead} that of {first.name}; "
                "have NTP set both (timedatectl set-ntp true)"
            )
    return tuple(lines)


def on_one_device(locks: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """A line for each two hosts, given by name and ``locks`` of their devices, that would measure on one device."""
    for (first, held), (second, wanted) in combinations(locks, 2):
        if shared := {*held}.intersection(wanted):
            yield (
                f"hosts {first} and {second} are one machine and share {min(shared).rpartition('/')[2]}; give each its "
                "own GPUs (CUDA_VISIBLE_DEVICES) or cores (taskset)"
            )


def _compared(first: Host, host: Host) -> Iterator[tuple[str, str, str, str]]:
    """Noun, value on the first host, value on the other, remedy."""
    same = "install the same on both"
    yield "pybench", first.pybench_version, host.pybench_version, same
    if first.pybench_version == host.pybench_version:
        digests = first.worker_sha256[:12], host.worker_sha256[:12]
        yield "worker's source", *digests, "install the same build of pybench on both"
    yield "driver", first.machine.driver or "", host.machine.driver or "", same
    ours, theirs = (counted(sorted(gpu.name for gpu in each.machine.gpus)) for each in (first, host))
    yield "GPUs", ours, theirs, "use hosts with the same GPUs"
    network = "make the ports of their cards active, or set NCCL_IB_DISABLE=1 on all"
    yield "network", first.machine.network or "", host.machine.network or "", network
    yield "engine", first.engine, host.engine, "name one with --engine on both"
    here, there = _packages(first), _packages(host)
    for name in sorted({*here, *there}):
        yield f"package {name}", here.get(name, ""), there.get(name, ""), "install the same on both, or give --python"


def _packages(host: Host) -> dict[str, str]:
    software = host.software
    return {} if software is None else {"python": software.python, **software.packages}
