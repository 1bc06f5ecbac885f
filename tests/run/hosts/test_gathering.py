"""Hosts that join a run and may not take part: one line with the remedy on every host, and all of them let go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from types import SimpleNamespace

import pytest

from pybench.model.errors import MachineError
from pybench.model.host import Host
from pybench.run.hosts import gathering as gathering_module
from pybench.run.hosts.frames import Frames
from pybench.run.hosts.gathering import Gathering, gather
from pybench.run.hosts.interface import held_port, port_of
from pybench.run.hosts.messages import PROTOCOL, Goodbye, Hello, Welcome, send, take
from pybench.run.hosts.rendezvous import Rendezvous
from tests.builders import HOST

SECRET = b"a secret of this test alone"
LIMIT_S = 30.0
_HOUR_S = 3600
_WALL_S = 1_800_000_000.0
A = HOST
B = replace(A, name="b", boot_id="boot-b")


@contextmanager
def joining() -> Iterator[tuple[Frames, list[BaseException | Gathering]]]:
    """A host's connection, and in the list what became of the one that leads, once this is left."""
    with held_port("127.0.0.1") as held, ThreadPoolExecutor() as pool:
        meet = Rendezvous(address="127.0.0.1", port=port_of(held), num_nodes=2, node_rank=0, limit_s=LIMIT_S)
        listener = meet.listener()
        assert listener is not None
        leads = pool.submit(gather, meet, listener, A, SECRET, lambda _line: None)
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
    wanted = f"has another version of pybench; install {version('pybench')} on all hosts"
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
