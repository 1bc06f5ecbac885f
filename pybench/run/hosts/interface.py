"""The network interface of an address at which ranks of several hosts meet, and a port there."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_REQUEST = struct.Struct("16sH2x4s232x")
_INET6 = Path("/proc/net/if_inet6")


def interface_of(address: str) -> str | None:
    """Name of the interface that has ``address``; ``None`` where no interface has it."""
    wanted = ipaddress.ip_address(address)
    if wanted.is_loopback:
        return "lo"
    if wanted.version == 6:  # noqa: PLR2004 - of the Internet Protocol
        return _inet6(wanted.exploded.replace(":", ""))
    return next((name for _, name in socket.if_nameindex() if _inet(name) == wanted.packed), None)


def held_port(address: str) -> socket.socket:
    """A port of ``address`` at which nothing listens, held until the socket is closed. Raises ``OSError``.

    Linux lets two sockets with SO_REUSEADDR have one port while none of the two listens (socket(7)): the server that
    the port is meant for, which sets that option as torch's does, may listen there meanwhile. Nobody else is given it.
    """
    held = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((address, 0))
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


def _inet6(wanted: str) -> str | None:
    try:
        lines = _INET6.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((fields[5] for fields in map(str.split, lines) if fields[0] == wanted), None)
