"""Connections of hosts: without the secret nobody takes part, and changed frames are refused."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from pybench.run.hosts.frames import ConnectionLostError, Frames
from pybench.run.hosts.messages import Begun, Ended, Ping, decode, send, take

SECRET = b"a secret of this test alone"


@contextmanager
def wire() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        yield ours, theirs


@contextmanager
def connected(node_secret: bytes = SECRET) -> Iterator[tuple[Frames, Frames, socket.socket, socket.socket]]:
    """The frames of a lead and of a node, and the sockets below them."""
    with wire() as (ours, theirs), ThreadPoolExecutor() as pool:
        node = pool.submit(Frames, theirs, node_secret, is_lead=False)
        lead = Frames(ours, SECRET, is_lead=True)
        yield lead, node.result(), ours, theirs


def test_messages_arrive_whole_and_in_order() -> None:
    with connected() as (lead, node, _, _):
        send(lead, Ping(sent_ns=1))
        send(lead, Ping(sent_ns=2))
        assert [take(node, 5), take(node, 5)] == [(Ping(sent_ns=1), b""), (Ping(sent_ns=2), b"")]
        assert take(node, 0) is None
        send(node, Begun(), b"body")
        assert take(lead, 5) == (Begun(), b"body")
        node.close()
        with pytest.raises(ConnectionLostError, match="closed"):
            take(lead, 5)


def test_another_secret_is_refused() -> None:
    """On both sides, before any message."""
    with pytest.raises(ConnectionLostError, match="another secret"), connected(b"guessed"):
        pass


def test_what_is_no_pybench_is_refused() -> None:
    with wire() as (ours, theirs):
        theirs.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 64)
        with pytest.raises(ConnectionLostError, match="no pybench"):
            Frames(ours, SECRET, is_lead=True)


@pytest.mark.parametrize("place", [0, 20, -1])
def test_a_changed_message_is_noticed(place: int) -> None:
    """A bit anywhere in it: in its lengths, its content, its code."""
    with connected() as (lead, node, ours, theirs):
        send(lead, Ping(sent_ns=1))
        frame = bytearray(theirs.recv(4096))
        frame[place] ^= 1
        with wire() as (forged, received):
            node._socket = received
            forged.sendall(frame)
            forged.shutdown(socket.SHUT_WR)
            with pytest.raises(ConnectionLostError, match=r"did not send|larger than any|closed"):
                take(node, 5)
        assert ours.fileno() > 0


def test_a_repeated_message_is_noticed() -> None:
    with connected() as (lead, node, _, theirs):
        send(lead, Ping(sent_ns=1))
        frame = theirs.recv(4096)
        with wire() as (forged, received):
            node._socket = received
            forged.sendall(frame + frame)
            assert take(node, 5) == (Ping(sent_ns=1), b"")
            with pytest.raises(ConnectionLostError, match="did not send"):
                take(node, 5)


def test_a_length_beyond_all_bounds_is_refused() -> None:
    with connected() as (lead, _, _, theirs):
        theirs.sendall(struct.pack("!IQ", 2**31, 2**60))
        with pytest.raises(ConnectionLostError, match="larger than any"):
            take(lead, 5)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"[]",
        b'["ping"]',
        b'["shutdown", {}]',
        b'["ping", {"sent_ns": "1"}]',
        b'["ended", {"code": 1.5}]',
        b'["events", {"rank": -1}]',
        b"[" * 10_000,
        b'["foundport", {"port": 70000}]',
    ],
)
def test_what_is_no_message_is_refused(head: bytes) -> None:
    """Values of another type, out of bounds, of no kind."""
    with pytest.raises(ConnectionLostError, match="can't be taken"):
        decode(head)


def test_a_message_is_what_was_encoded() -> None:
    assert decode(b'["ended", {"code": -9, "problem": "x"}]') == Ended(code=-9, problem="x")
