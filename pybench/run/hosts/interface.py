"""The network on which ranks of several hosts meet: the interface of an address, and a port there."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_REQUEST = struct.Struct("16sH2x4s232x")
_INET6 = Path("/proc/net/if_inet6")
_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def on_network(local_address: str, shell: Mapping[str, str]) -> dict[str, str]:
    """Variables that select the interface of ``local_address`` for collectives; the shell's values take precedence."""
    name = interface_of(local_address)
    return {} if name is None else {variable: name for variable in _VARIABLES if variable not in shell}


def interface_of(address: str) -> str | None:
    """Name of the interface that has ``address``; ``None`` where no interface has it."""
    bare, _, zone = address.partition("%")
    if zone:
        return zone
    wanted = ipaddress.ip_address(bare)
    if wanted.is_loopback:
        return "lo"
    if wanted.version == 6:  # noqa: PLR2004 - of the Internet Protocol
        try:
            lines = _INET6.read_text(encoding="ascii").splitlines()
        except OSError:
            return None
        digits = wanted.exploded.replace(":", "")
        return next((fields[5] for fields in map(str.split, lines) if fields[0] == digits), None)
    return next((name for _, name in socket.if_nameindex() if _inet(name) == wanted.packed), None)


def held_port(address: str) -> socket.socket:
    """A port of ``address`` at which nothing listens, held until the socket is closed. Raises ``OSError``.

    Linux lets two sockets with SO_REUSEADDR have one port while none of the two listens (socket(7)): the server that
    the port is meant for, which sets that option as torch's does, may listen there meanwhile. Nobody else is given it.
    """
    family, kind, _, _, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]  # with an IPv6 zone
    held = socket.socket(family, kind)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(where)
    except BaseException:
        held.close()
        raise
    return held


def port_of(held: socket.socket) -> int:
    """The port's number."""
    return int(held.getsockname()[1])


def _inet(name: str) -> bytes | None:
    request = struct.pack("16s240x", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            found = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return None
    address: bytes = _REQUEST.unpack(found)[2]
    return address
