"""The hosts of a replica that spans several: one process on each, of which the first one drives the engine."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ReplicaHosts:
    """This process's ``place`` among the replica's hosts; at ``address`` and ``port`` the first one's workers serve.

    ``uuids`` are the GPUs of all its hosts. ``held`` keeps the port from all but that server while this object lives.
    """

    num_hosts: int
    place: int
    address: str
    port: int
    uuids: frozenset[str]
    held: socket.socket | None = field(default=None, repr=False, compare=False)


def address_to_the_others() -> str:
    """This host's own address on the way to where torchrun's ranks meet. To be called before those names are gone."""
    server = os.environ["MASTER_ADDR"].strip("[]")
    family, kind, *_, address = socket.getaddrinfo(server, int(os.environ["MASTER_PORT"]), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as way:
        way.connect(address)  # sends nothing
        return str(way.getsockname()[0])


def meet_hosts(num_hosts: int, address: str, uuids: tuple[str, ...]) -> ReplicaHosts:
    """Learn of the replica's other hosts; collective over all processes of the point."""
    from torch import distributed  # a replica of one host starts without it

    first, place = divmod(distributed.get_rank(), num_hosts)
    held = None if place else _held_port(address)
    found: list[tuple[str, int, tuple[str, ...]]] = [("", 0, ())] * distributed.get_world_size()
    distributed.all_gather_object(found, (address, held.getsockname()[1] if held else 0, uuids))
    own = found[first * num_hosts : (first + 1) * num_hosts]
    return ReplicaHosts(
        num_hosts=num_hosts,
        place=place,
        address=own[0][0],
        port=own[0][1],
        uuids=frozenset(uuid for *_, theirs in own for uuid in theirs),
        held=held,
    )


def _held_port(address: str) -> socket.socket:
    """A free port of ``address``: a server with SO_REUSEADDR, as torch's, may listen there, nobody else is given it."""
    held = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((address, 0))
    return held
