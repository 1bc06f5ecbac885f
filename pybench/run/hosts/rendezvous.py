"""Where the hosts of a run meet: who leads, who joins, and with which secret."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pybench.model.errors import MachineError, UsageError
from pybench.run.hosts.frames import HANDSHAKE_LIMIT_S, ConnectionLostError, Frames

SECRET_VARIABLE, SECRET_FILE_VARIABLE = "PYBENCH_RENDEZVOUS_SECRET", "PYBENCH_RENDEZVOUS_SECRET_FILE"
NAME_VARIABLE = "PYBENCH_HOST_NAME"
JOIN_LIMIT_S = 90.0
_MIN_SECRET_BYTES, _MAX_SECRET_BYTES = 16, 4096
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")
_RETRY_S = 0.25
# Of another host: this one can't listen there.
_NOT_HERE = frozenset((errno.EADDRNOTAVAIL, errno.EADDRINUSE))


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
        return f"{self.address}:{self.port}"

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
        """Whether only hosts of this machine can meet there."""
        try:
            return ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return self.address == "localhost"

    def listener(self) -> socket.socket | None:
        """A socket that listens here, where this host leads; ``None`` where it joins. Raises ``MachineError``."""
        if self.node_rank:
            return None
        where = self._resolved(time.monotonic() + self.limit_s)
        family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        try:
            return socket.create_server(where, family=family, backlog=self.num_nodes)
        except OSError as error:
            if self.node_rank is None and error.errno in _NOT_HERE:
                return None
            raise MachineError(
                f"{self}: cannot listen here: {error.strerror}; give an address of this host and a free port"
            ) from error

    def joined(self, secret: bytes) -> Frames:
        """A connection to the host that leads, once it listens. Raises ``MachineError`` after the limit."""
        deadline = time.monotonic() + self.limit_s
        while True:
            left_s = max(0.1, deadline - time.monotonic())
            try:
                where = self._resolved(deadline)
                connection = socket.create_connection(where, timeout=min(left_s, HANDSHAKE_LIMIT_S))
            except OSError as error:
                if time.monotonic() > deadline:
                    raise MachineError(
                        f"{self}: the host that leads did not answer within {self.limit_s:g} s "
                        f"({error.strerror or error}); start pybench there, or check the address and the firewall"
                    ) from error
                time.sleep(_RETRY_S)
                continue
            try:
                return Frames(connection, secret, is_lead=False)
            except (OSError, ConnectionLostError) as error:
                reason = f"{error}".removeprefix("the connection was closed") or "it closed the connection"
                raise MachineError(
                    f"{self}: cannot join: {reason}; the secret in {SECRET_VARIABLE} must be the same on all hosts"
                ) from error

    def _resolved(self, deadline_s: float) -> tuple[str, int]:
        """Address and port. A name may take a while to be known: that of a pod is not before it runs."""
        while True:
            try:
                found = socket.getaddrinfo(self.address, self.port, type=socket.SOCK_STREAM)
            except OSError as error:
                if time.monotonic() > deadline_s:
                    raise MachineError(
                        f"{self}: no such host here ({error.strerror or error}); "
                        "give a name or address that every host knows"
                    ) from error
                time.sleep(_RETRY_S)
            else:
                return str(found[0][4][0]), self.port


def read_secret(environment: Mapping[str, str]) -> bytes:
    """The secret that the hosts share, from a variable or the file that another one names. Raises ``UsageError``."""
    path = environment.get(SECRET_FILE_VARIABLE)
    text = environment.get(SECRET_VARIABLE, "")
    if path and not text:
        try:
            with Path(path).open("rb") as stream:
                text = stream.read(_MAX_SECRET_BYTES).decode(errors="surrogateescape")
        except OSError as error:
            raise UsageError(f"{SECRET_FILE_VARIABLE}: {path}: cannot be read: {error.strerror}") from error
    secret = os.fsencode(text.strip())
    if len(secret) < _MIN_SECRET_BYTES:
        problem = "is shorter than" if secret else "is needed on all hosts, the same on each, of at least"
        raise UsageError(
            f"{SECRET_VARIABLE} {problem} {_MIN_SECRET_BYTES} characters; make one with: openssl rand -hex 32"
        )
    return secret


def host_name(environment: Mapping[str, str]) -> str:
    """What this host is called: ``PYBENCH_HOST_NAME``, the name of its slurmd, or its own. Raises ``UsageError``."""
    name = environment.get(NAME_VARIABLE) or environment.get("SLURMD_NODENAME") or socket.gethostname()
    if not _NAME.fullmatch(name):
        raise UsageError(f"{NAME_VARIABLE}: {name!r}: give letters, digits and . _ - only")
    return name
