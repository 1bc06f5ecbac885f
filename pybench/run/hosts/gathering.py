"""The hosts of a run, gathered by the one that leads."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from importlib.metadata import version

from pybench.core.likeness import unlike
from pybench.model.errors import MachineError
from pybench.model.host import Host, HostClock, Place
from pybench.run.engines.base import Notify
from pybench.run.hosts.frames import HANDSHAKE_LIMIT_S, ConnectionLostError, Frames
from pybench.run.hosts.link import HostLink, HostLostError
from pybench.run.hosts.messages import PROTOCOL, Goodbye, Hello, Welcome, decode, send
from pybench.run.hosts.rendezvous import Rendezvous

_SLICE_S = 0.5


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
            link.close()


def gather(rendezvous: Rendezvous, listener: socket.socket, lead: Host, secret: bytes, notify: Notify) -> Gathering:
    """Wait for all hosts, and refuse those that are not like the first.

    Raises ``MachineError`` with a line for each difference, or where hosts are missing after the limit.
    """
    gathering = Gathering(lead)
    try:
        with listener:
            walls_s = _accepted(gathering, rendezvous, listener, secret, notify)
        _require_alike(gathering, walls_s)
        gathering.links = tuple(sorted(gathering.links, key=lambda link: link.name))
        for link in gathering.links:
            link.order(Welcome(lead=lead.name))
    except BaseException as error:
        gathering.dismiss(str(error) or "the host that leads was interrupted")
        raise
    return gathering


def _accepted(
    gathering: Gathering, rendezvous: Rendezvous, listener: socket.socket, secret: bytes, notify: Notify
) -> list[float]:
    """Fill the gathering; gives each host's wall clock less this one's, in s."""
    walls_s = [0.0]
    deadline = time.monotonic() + rendezvous.limit_s
    while len(gathering.hosts) < rendezvous.num_nodes:
        if time.monotonic() > deadline:
            raise _missing(rendezvous, gathering)
        if (found := _next(listener, secret, notify)) is not None:
            link, wall_s = found
            gathering.links = (*gathering.links, link)
            walls_s.append(wall_s)
            notify(f"host {link.name} joined, {len(gathering.hosts)} of {rendezvous.num_nodes}")
    return walls_s


def _require_alike(gathering: Gathering, walls_s: Sequence[float]) -> None:
    if lines := unlike(gathering.hosts, walls_s):
        raise MachineError("\n".join(lines))


def _missing(rendezvous: Rendezvous, gathering: Gathering) -> MachineError:
    there = ", ".join(host.name for host in gathering.hosts)
    return MachineError(
        f"{rendezvous}: {len(gathering.hosts)} of {rendezvous.num_nodes} hosts have joined within "
        f"{rendezvous.limit_s:g} s ({there}); start the same command on the others, or check the network"
    )


def _next(listener: socket.socket, secret: bytes, notify: Notify) -> tuple[HostLink, float] | None:
    """The next host that joins, and its wall clock less this one's; ``None`` where none does for now.

    Raises ``MachineError`` for a host of the run, which knows its secret, with another version of pybench.
    """
    listener.settimeout(_SLICE_S)
    try:
        connection, (address, *_) = listener.accept()
    except TimeoutError:
        return None
    try:
        frames = Frames(connection, secret, is_lead=True)
        found = frames.take(HANDSHAKE_LIMIT_S)
    except (OSError, ConnectionLostError) as error:
        notify(f"{address}: refused: {error}")
        return None
    if found is None:
        notify(f"{address}: refused: it sent nothing within {HANDSHAKE_LIMIT_S:g} s")
        frames.close()
        return None
    hello = _hello(found[0])
    if hello is None:
        problem = f"the host at {address} has another version of pybench; install {version('pybench')} on all hosts"
        with closing(frames), suppress(ConnectionLostError):
            send(frames, Goodbye(problem=problem))
        raise MachineError(problem)
    return HostLink(hello.host, frames), hello.wall_s - time.time()


def _hello(head: bytes) -> Hello | None:
    """A host's first message; ``None`` where another version wrote it."""
    try:
        found = decode(head)
    except ConnectionLostError:
        return None
    return found if isinstance(found, Hello) and found.protocol == PROTOCOL else None
