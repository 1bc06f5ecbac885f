"""Hosts that join a run and may not take part: one line with the remedy on every host, and all of them let go."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from itertools import cycle, islice
from types import SimpleNamespace

import pytest

from pybench import __version__
from pybench.machine.device_lock import lock_names
from pybench.model.errors import MachineError
from pybench.model.machine import Host
from pybench.run.hosts import gathering as gathering_module
from pybench.run.hosts.frames import Frames
from pybench.run.hosts.gathering import Gathering, gather, on_one_device
from pybench.run.hosts.messages import PROTOCOL, Goodbye, Hello, Welcome, send, take
from pybench.run.hosts.rendezvous import Rendezvous, held_port
from tests.builders import H200, HOST
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("run.hosts.gathering")

SECRET = b"a secret of this test alone"
LIMIT_S = 30.0
_HOUR_S = 3600
_WALL_S = 1_800_000_000.0
A = HOST
B = replace(A, name="b", boot_id="boot-b")


@contextmanager
def joining(strangers: int = 0, lead: Host = HOST) -> Iterator[tuple[Frames, list[BaseException | Gathering]]]:
    """A host's connection, and a list for the lead's result after the block.

    ``strangers`` connect before it: some are silent, some send a little, one sends what no pybench does.
    """
    with held_port("127.0.0.1") as held, ThreadPoolExecutor() as pool, ExitStack() as silent:
        meet = Rendezvous(address="127.0.0.1", port=held.getsockname()[1], num_nodes=2, node_rank=0, limit_s=LIMIT_S)
        listener = meet.listener()
        assert listener is not None
        leads = pool.submit(gather, meet, listener, lead, SECRET, lambda _line: None)
        for sent in islice(cycle((b"", b"pybench hosts", b"GET / HTTP/1.1\r\n\r\n")), strangers):
            silent.enter_context(socket.create_connection((meet.address, meet.port))).sendall(sent)
        frames = replace(meet, node_rank=1).joined(SECRET)
        ended: list[BaseException | Gathering] = []
        try:
            yield frames, ended
        finally:
            frames.close()
            ended.append(leads.exception(LIMIT_S) or leads.result())


@pytest.mark.parametrize(
    ("other", "wall_s", "line"),
    [
        (replace(B, pybench_version="1.1"), 0, "host b: pybench 1.1, a has 1.0; install the same on both"),
        (replace(B, machine=replace(A.machine, driver="570.0")), 0, "host b: driver 570.0, a has 580.1; install"),
        (B, _HOUR_S, f"host b: its wall clock is {_HOUR_S} s ahead of that of a; have NTP set both"),
        (replace(B, name="a"), 0, "2 hosts are called a; give each its own with PYBENCH_HOST_NAME"),
        (replace(B, engine="podman"), 0, "host b: engine podman, a has none; name one with --engine on both"),
    ],
)
def test_a_host_that_is_not_alike(other: Host, wall_s: float, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same line is what both hosts end with. The wall clock stands still on the way of the message."""
    clock = SimpleNamespace(time=lambda: _WALL_S, monotonic=time.monotonic)
    monkeypatch.setattr(gathering_module, "time", clock)
    with joining() as (frames, ended):
        send(frames, Hello(protocol=PROTOCOL, host=other, wall_s=_WALL_S + wall_s))
        found = take(frames, LIMIT_S)
        assert found is not None
        assert isinstance(found[0], Goodbye), found
        assert line in found[0].problem
    assert isinstance(ended[0], MachineError)
    assert str(ended[0]) == found[0].problem


def test_a_host_with_another_protocol() -> None:
    """Also where its first message has fields that this version does not know."""
    wanted = f"has another version of pybench; install {__version__} on all hosts"
    newer = asdict(Hello(protocol=PROTOCOL + 1, host=B, wall_s=time.time()))
    for values in (newer, {**newer, "mood": "good"}, {"protocol": PROTOCOL}):
        with joining() as (frames, ended):
            frames.send(json.dumps(["hello", values]).encode())
            found = take(frames, LIMIT_S)
            assert found is not None
            assert isinstance(found[0], Goodbye), found
            assert wanted in found[0].problem
        assert isinstance(ended[0], MachineError)
        assert wanted in str(ended[0])


def test_alike_hosts_are_welcome() -> None:
    """And are let go with the run."""
    with joining() as (frames, ended):
        send(frames, Hello(protocol=PROTOCOL, host=B, wall_s=time.time()))
        assert take(frames, LIMIT_S) == (Welcome(lead="a"), b"")
    (gathering,) = ended
    assert isinstance(gathering, Gathering)
    assert [host.name for host in gathering.hosts] == ["a", "b"]
    gathering.dismiss()


@pytest.mark.parametrize("strangers", [20, 3 * gathering_module._MAX_PENDING])
def test_connections_that_only_hold_on_hold_up_nobody(strangers: int) -> None:
    """Also with more of them than may shake hands at a time: the host joins before the first is closed."""
    with joining(strangers) as (frames, ended):
        send(frames, Hello(protocol=PROTOCOL, host=B, wall_s=time.time()))
        assert take(frames, LIMIT_S) == (Welcome(lead="a"), b"")
    (gathering,) = ended
    assert isinstance(gathering, Gathering)
    gathering.dismiss()


@pytest.mark.parametrize(("uuids", "shared"), [(("GPU-1", "GPU-2"), "GPU-2"), ((), "core-")])
def test_two_hosts_on_one_device(uuids: tuple[str, ...], shared: str) -> None:
    """They would wait for each other's locks: both are refused by name."""
    own = lock_names(uuids)
    hello = Hello(protocol=PROTOCOL, host=B, wall_s=time.time(), locks=own)
    lead = replace(A, machine=replace(A.machine, gpus=tuple(replace(H200, uuid=uuid) for uuid in uuids[1:])))
    with joining(lead=lead) as (frames, ended):
        send(frames, replace(hello, host=replace(lead, name="b")))
        found = take(frames, LIMIT_S)
    assert found is not None
    assert isinstance(found[0], Goodbye)
    assert f"hosts a and b are one machine and share {shared}" in found[0].problem
    assert isinstance(ended[0], MachineError)


def test_each_pair_of_hosts_on_one_machine_is_named() -> None:
    """Also a third one."""
    lines = list(on_one_device([("a", ("core-0", "core-1")), ("b", ("core-1",)), ("c", ("core-0",)), ("d", ("x/y",))]))
    assert [line.partition(";")[0] for line in lines] == [
        SENTENCES["each_pair_of_hosts_on_one_machine_is"],
        SENTENCES["each_pair_of_hosts_on_one_machine_is_2"],
    ]


def test_a_host_tries_on_until_it_may_join() -> None:
    """After what listens there closed its connection, and after one that never answered."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as pool:
        meet = Rendezvous(address="127.0.0.1", port=server.getsockname()[1], num_nodes=2, node_rank=1, limit_s=LIMIT_S)
        joins = pool.submit(meet.joined, SECRET)
        for _ in range(2):
            server.accept()[0].close()
        with closing(Frames(server.accept()[0], SECRET, is_lead=True)), closing(joins.result(LIMIT_S)):
            pass
