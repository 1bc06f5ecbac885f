"""The hosts of a replica that spans several: one process on each, of which the first one drives the engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ReplicaHosts:
    """This process's ``place`` among the replica's hosts; at ``address`` and ``port`` the first one's workers serve.

    ``uuids`` are the GPUs of all its hosts.
    """

    num_hosts: int
    place: int
    address: str
    port: int
    uuids: frozenset[str]


def meet_hosts(num_hosts: int, own_place: tuple[str, int], uuids: tuple[str, ...]) -> ReplicaHosts:
    """Learn of the replica's other hosts; collective over all processes of the point."""
    from torch import distributed  # a replica of one host starts without it

    first, place = divmod(distributed.get_rank(), num_hosts)
    found: list[tuple[tuple[str, int], tuple[str, ...]]] = [(("", 0), ())] * distributed.get_world_size()
    distributed.all_gather_object(found, (own_place, uuids))
    own = found[first * num_hosts : (first + 1) * num_hosts]
    (address, port), _ = own[0]
    return ReplicaHosts(
        num_hosts=num_hosts,
        place=place,
        address=address,
        port=port,
        uuids=frozenset(uuid for _, theirs in own for uuid in theirs),
    )
