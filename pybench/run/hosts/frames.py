"""Frames over TCP between hosts that share a secret: each bounded, in order, and authenticated; none is encrypted.

Both sides prove that they know the secret over a nonce of each (HMAC-SHA256), and derive a key of the connection from
it. Every frame ends with a code over its direction, number and content: nobody else on the network can join, insert or
change anything.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import select
import socket
import struct
import time

from pybench.model.errors import MachineError

MAX_HEAD_BYTES = 2**22
MAX_BODY_BYTES = 2**30
SEND_LIMIT_S = 60.0
HANDSHAKE_LIMIT_S = 5.0
"""A handshake takes three messages; connections that only hold on are closed after this."""
_MAGIC = b"pybench hosts 1\n"
_LENGTHS = struct.Struct("!IQ")
_CODE_BYTES = _NONCE_BYTES = 32
_CHUNK_BYTES = 2**20
# A host that lost power is noticed by the kernel: idle, then probes at this interval, this often (tcp(7)).
_IDLE_S, _PROBE_S, _NUM_PROBES = 15, 5, 6

Frame = tuple[bytes, bytes]
"""A head of JSON and a body of bytes."""


class ConnectionLostError(MachineError):
    """The other host is gone, or sends what no pybench sends."""


class OtherSecretError(ConnectionLostError):
    """The other side is a pybench that has another secret."""


class Frames:
    """One connection after the handshake. ``is_lead`` is whether this side leads the run."""

    def __init__(self, connection: socket.socket, secret: bytes, *, is_lead: bool) -> None:
        """Shake hands within ``HANDSHAKE_LIMIT_S``. Raises ``ConnectionLostError``, ``OtherSecretError``."""
        self._socket = connection
        self._buffer = bytearray()
        self._ours, self._theirs = (b"lead", b"node") if is_lead else (b"node", b"lead")
        self._num_sent = self._num_taken = 0
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _NUM_PROBES)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (_IDLE_S + _PROBE_S * _NUM_PROBES))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._key = self._handshake(secret, is_lead=is_lead)
        except (OSError, ConnectionLostError):
            connection.close()
            raise

    @property
    def local_address(self) -> str:
        """This host's address on the way to the other."""
        return str(self._socket.getsockname()[0])

    @property
    def address(self) -> str:
        """The other host's address."""
        return str(self._socket.getpeername()[0])

    def send(self, head: bytes, body: bytes = b"") -> None:
        """Send one frame. Raises ``ConnectionLostError``."""
        frame = _LENGTHS.pack(len(head), len(body)) + head + body
        code = self._code(self._ours, self._num_sent, frame)
        self._num_sent += 1
        try:
            self._socket.settimeout(SEND_LIMIT_S)
            self._socket.sendall(frame + code)
        except OSError as error:
            raise ConnectionLostError(f"the connection is lost: {error.strerror or error}") from error

    def take(self, limit_s: float) -> Frame | None:
        """The next frame within ``limit_s``; ``None`` where none came. Raises ``ConnectionLostError``."""
        deadline = time.monotonic() + limit_s
        while (frame := self._whole()) is None:
            left_s = deadline - time.monotonic()
            if not self._receive(max(0.0, left_s)) and left_s <= 0:
                return None
        return frame

    def fileno(self) -> int:
        """Of the socket, to wait for it."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection; a second time does nothing."""
        self._socket.close()

    def _handshake(self, secret: bytes, *, is_lead: bool) -> bytes:
        deadline_s = time.monotonic() + HANDSHAKE_LIMIT_S
        nonce = secrets.token_bytes(_NONCE_BYTES)
        self._socket.settimeout(HANDSHAKE_LIMIT_S)
        self._socket.sendall(_MAGIC + nonce)
        if self._exactly(len(_MAGIC), deadline_s) != _MAGIC:
            raise ConnectionLostError("what answers there is no pybench; choose another port")
        theirs = self._exactly(_NONCE_BYTES, deadline_s)
        both = nonce + theirs if is_lead else theirs + nonce
        self._socket.sendall(_digest(secret, self._ours + both))
        if not hmac.compare_digest(self._exactly(_CODE_BYTES, deadline_s), _digest(secret, self._theirs + both)):
            raise OtherSecretError("the other side has another secret; give all hosts the same one")
        return _digest(secret, b"frames" + both)

    def _exactly(self, length: int, deadline_s: float) -> bytes:
        while len(self._buffer) < length:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise ConnectionLostError(f"the other side did not finish a handshake within {HANDSHAKE_LIMIT_S:g} s")
            self._receive(left_s, length - len(self._buffer))
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        return taken

    def _receive(self, limit_s: float, most_bytes: int = _CHUNK_BYTES) -> bool:
        """Receive into the buffer; returns whether bytes came within ``limit_s``."""
        try:
            if not select.select([self._socket], [], [], limit_s)[0]:
                return False
            chunk = self._socket.recv(most_bytes)
        except (OSError, ValueError) as error:
            raise ConnectionLostError(f"the connection is lost: {getattr(error, 'strerror', None) or error}") from error
        if not chunk:
            raise ConnectionLostError("the connection was closed")
        self._buffer += chunk
        return True

    def _whole(self) -> Frame | None:
        """The first frame of the buffer, once it is there."""
        if len(self._buffer) < _LENGTHS.size:
            return None
        head_bytes, body_bytes = _LENGTHS.unpack_from(self._buffer)
        if head_bytes > MAX_HEAD_BYTES or body_bytes > MAX_BODY_BYTES:
            raise ConnectionLostError(f"a message of {head_bytes + body_bytes} bytes came, larger than any should be")
        end = _LENGTHS.size + head_bytes + body_bytes
        if len(self._buffer) < end + _CODE_BYTES:
            return None
        frame, code = bytes(self._buffer[:end]), bytes(self._buffer[end : end + _CODE_BYTES])
        del self._buffer[: end + _CODE_BYTES]
        if not hmac.compare_digest(code, self._code(self._theirs, self._num_taken, frame)):
            raise ConnectionLostError("a message came that the other host did not send; the network is not trusted")
        self._num_taken += 1
        start = _LENGTHS.size + head_bytes
        return frame[_LENGTHS.size : start], frame[start:]

    def _code(self, direction: bytes, number: int, frame: bytes) -> bytes:
        return _digest(self._key, direction + number.to_bytes(8, "big") + frame)


def _digest(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()
