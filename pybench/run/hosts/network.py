"""Variables by which the collectives of several hosts' ranks take the network on which the hosts meet."""

from __future__ import annotations

from collections.abc import Mapping

from pybench.run.hosts.interface import interface_of

_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def on_network(local_address: str, shell: Mapping[str, str]) -> dict[str, str]:
    """The interface of this host's address, for each variable that the shell does not set itself."""
    name = interface_of(local_address)
    return {} if name is None else {variable: name for variable in _VARIABLES if variable not in shell}
