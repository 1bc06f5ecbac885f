"""The network interface of an address, at which ranks of several hosts meet."""

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


def free_port(address: str) -> int:
    """A port of ``address`` that nothing listens at. Raises ``OSError``."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as found:
        found.bind((address, 0))
        return int(found.getsockname()[1])


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
