"""The meeting point of a run's hosts: the lead and the others, their secret and network, and this host's record."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import re
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from pybench import __version__
from pybench.machine.environment import host_clock, network, snapshot
from pybench.model.errors import MachineError, UsageError, fault_text
from pybench.model.machine import Host, this_build
from pybench.power.recorder import sampler_unavailable_reason
from pybench.run.engines.base import Launcher
from pybench.run.engines.environment import recorded, tuning
from pybench.run.engines.stage import installed_digest
from pybench.run.hosts.frames import HANDSHAKE_LIMIT_S, ConnectionLostError, Frames, OtherSecretError

SECRET_VARIABLE, SECRET_FILE_VARIABLE = "PYBENCH_RENDEZVOUS_SECRET", "PYBENCH_RENDEZVOUS_SECRET_FILE"
NAME_VARIABLE = "PYBENCH_HOST_NAME"
JOIN_LIMIT_S = 90.0
_MIN_SECRET_BYTES, _MAX_SECRET_BYTES = 16, 4096
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_RETRY_S = 0.25
# Of another host: this one can't listen there.
_NOT_HERE = frozenset((errno.EADDRNOTAVAIL, errno.EADDRINUSE))
_BACKLOG = 128
_LOOPBACK_NAMES = frozenset(("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"))


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """The address that all hosts are given, and how many they are.

    ``node_rank`` is this host's number, 0 for the one that leads; ``None``: the one that can listen at the address
    leads. ``limit_s`` is how long hosts wait for each other.
    """

    address: str
    port: int
    num_nodes: int
    node_rank: int | None = None
    limit_s: float = JOIN_LIMIT_S

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    @classmethod
    def parse(
        cls, text: str, num_nodes: int, node_rank: int | None = None, limit_s: float = JOIN_LIMIT_S
    ) -> Rendezvous:
        """Read ``HOST:PORT``. Raises ``UsageError``."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise UsageError(f"--rendezvous {text}: give HOST:PORT, such as node1:29400")
        if node_rank is not None and node_rank >= num_nodes:
            raise UsageError(f"--node-rank {node_rank}: of {num_nodes} nodes the last is {num_nodes - 1}")
        return cls(address=host.strip("[]"), port=int(port), num_nodes=num_nodes, node_rank=node_rank, limit_s=limit_s)

    @property
    def is_on_loopback(self) -> bool:
        """Whether the address is given as one of this machine alone."""
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return self.address in _LOOPBACK_NAMES

    def listener(self) -> socket.socket | None:
        """A socket that listens here, where this host leads; ``None`` where it joins. Raises ``MachineError``."""
        if self.node_rank:
            return None
        family, where = self._resolved()
        if ipaddress.ip_address(where[0].partition("%")[0]).is_loopback and not self.is_on_loopback:
            raise MachineError(
                f"{self}: on this host {self.address} is the loopback address {where[0]}, which no other host can "
                "reach (see /etc/hosts); give an address of this host's network: --rendezvous ADDRESS:PORT"
            )
        try:
            return socket.create_server(where, family=family, backlog=max(_BACKLOG, self.num_nodes))
        except OSError as error:
            if self.node_rank is None and error.errno in _NOT_HERE:
                return None
            raise MachineError(
                f"{self}: cannot listen here: {error.strerror}; give an address of this host and a free port"
            ) from error

    def joined(self, secret: bytes) -> Frames:
        """A connection to the host that leads. Raises ``MachineError``, at once where secrets differ."""
        deadline_s = time.monotonic() + self.limit_s
        while True:
            try:
                left_s = max(0.1, deadline_s - time.monotonic())
                connection = socket.create_connection((self.address, self.port), min(left_s, HANDSHAKE_LIMIT_S))
                return Frames(connection, secret, is_lead=False)
            except OtherSecretError as error:
                raise MachineError(
                    f"{self}: cannot join: the secret in {SECRET_VARIABLE} must be the same on all hosts"
                ) from error
            except (OSError, ConnectionLostError) as error:
                if time.monotonic() > deadline_s:
                    raise MachineError(f"{self}: {self._why_not(error)}") from error
            time.sleep(_RETRY_S)

    def _why_not(self, error: OSError | ConnectionLostError) -> str:
        """Why no host answered within the limit, and what to do."""
        if isinstance(error, socket.gaierror):
            return f"no such host here ({error.strerror}); give a name or address that every host knows"
        if isinstance(error, ConnectionLostError):
            return f"the host that leads did not let this one join within {self.limit_s:g} s: {error}"
        return (
            f"the host that leads did not answer within {self.limit_s:g} s ({error.strerror or error}); "
            "start pybench there, or check the address and the firewall"
        )

    def _resolved(self) -> tuple[socket.AddressFamily, tuple[str, int]]:
        """Family and socket address, with an IPv6 zone. The name of a pod is unknown until it runs."""
        deadline_s = time.monotonic() + self.limit_s
        while True:
            try:
                family, _, _, _, where = socket.getaddrinfo(self.address, self.port, type=socket.SOCK_STREAM)[0]
            except OSError as error:
                if time.monotonic() > deadline_s:
                    raise MachineError(f"{self}: {self._why_not(error)}") from error
                time.sleep(_RETRY_S)
            else:
                return family, cast("tuple[str, int]", where)


def read_secret(environment: Mapping[str, str]) -> bytes:
    """The secret that the hosts share, from a variable or the file that another one names. Raises ``UsageError``."""
    path = environment.get(SECRET_FILE_VARIABLE)
    text = environment.get(SECRET_VARIABLE, "")
    if path and not text:
        try:
            with Path(path).open("rb") as stream:
                text = stream.read(_MAX_SECRET_BYTES).decode(errors="surrogateescape")
        except OSError as error:
            raise UsageError(f"{SECRET_FILE_VARIABLE}: {path}: cannot be read: {fault_text(error)}") from error
    secret = os.fsencode(text.strip())
    if len(secret) < _MIN_SECRET_BYTES:
        problem = "is shorter than" if secret else "is needed on all hosts, the same on each, of at least"
        raise UsageError(
            f"{SECRET_VARIABLE} {problem} {_MIN_SECRET_BYTES} characters; make one with: openssl rand -hex 32"
        )
    return secret


def host_name(environment: Mapping[str, str]) -> str:
    """This host's name: ``PYBENCH_HOST_NAME``, that of its slurmd, or the system's. Raises ``UsageError``."""
    name = environment.get(NAME_VARIABLE) or environment.get("SLURMD_NODENAME") or socket.gethostname()
    if not _NAME.fullmatch(name):
        raise UsageError(f"{NAME_VARIABLE}: {name!r}: give letters, digits and . _ - only")
    return name


def this_host(name: str, engine: str, local: Launcher | None, *, alone: bool = False) -> Host:
    """Look at this host once; ``local`` starts workers without containers, ``alone`` is one machine's run."""
    boot_id, time_offset_ns = host_clock()
    return Host(
        name=name,
        machine=replace(snapshot(), network=None if alone else network(os.environ)),
        boot_id=boot_id,
        time_offset_ns=time_offset_ns,
        pybench_version=__version__,
        build=this_build(),
        worker_sha256=installed_digest(),
        engine=engine,
        software=None if local is None else local.software(),
        environment=recorded(tuning(os.environ) if local is None else local.tuning(os.environ)),
        power_reason=sampler_unavailable_reason(),
    )


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


def _inet(name: str) -> bytes | None:
    request = struct.pack("16s240x", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            reply = fcntl.ioctl(asking.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return None
    address: bytes = _REQUEST.unpack(reply)[2]
    return address
