"""A host that takes orders: what starts its workers comes first, and a worker in another image is no result."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

from pybench.model.container import ContainerRequest, ContainerRun
from pybench.model.errors import MachineError
from pybench.model.machine import Host
from pybench.model.wire import Failure
from pybench.run.engines.base import Launch, LaunchRequirements
from pybench.run.engines.choice import Choose
from pybench.run.engines.local import Local
from pybench.run.hosts.frames import Frames
from pybench.run.hosts.messages import (
    Begin,
    Begun,
    Ended,
    FindPort,
    FoundPort,
    Goodbye,
    Hello,
    Message,
    Prepare,
    Prepared,
    Report,
    Stop,
    send,
    take,
)
from pybench.run.hosts.rendezvous import held_port
from pybench.run.serve import NodeRunner
from tests.builders import MACHINE
from tests.run.hosts.test_frames import connected

HOST = Host(name="b", machine=MACHINE, boot_id="boot", time_offset_ns=0, pybench_version="1", worker_sha256="f00d" * 16)
PREPARE = Prepare(
    engine="none", backends=("torch",), device="cpu", request=ContainerRequest(), num_gpus=0, container=None
)
BEGIN = Begin(
    token="run/0123456789abcdef",
    orders="{}\n",
    backend="torch",
    gpu_uuids=(),
    first_rank=1,
    num_ranks=1,
    node_rank=1,
    num_nodes=2,
    address="127.0.0.1",
    port=29400,
    limit_s=60,
)
LIMIT_S = 60
_Answer = TypeVar("_Answer")


class _OfAnother:
    """A worker that ended well at once, in a container."""

    def wait(self, timeout_s: float) -> int | None:
        del timeout_s
        return 0

    def container(self) -> ContainerRun | None:
        return ContainerRun(id="c", image_id="sha256:another", exit_code=0, start_s=0.1)

    def end(self) -> None:
        """It has."""


@dataclass(frozen=True)
class _Boxed(Local):
    """Says of every worker that another image ran."""

    def start(self, job: Launch, log: Path) -> _OfAnother:  # type: ignore[override]
        assert job.meeting is not None
        log.write_text(f"{job.meeting.local_port}")
        return _OfAnother()

    def verify(self, container: ContainerRun | None, job: Launch, log: Path) -> Failure | None:
        del job, log
        return Failure(cause="identity", message=f"image {container and container.image_id} ran, expected sha256:1")


@contextmanager
def ordered(folder: Path, choose: Choose) -> Iterator[tuple[Frames, Future[None]]]:
    """The lead's connection to a serving host."""
    with connected() as (lead, node, _, _), ThreadPoolExecutor() as pool:
        served = pool.submit(NodeRunner(HOST, node, choose, folder, lambda _line: None).serve)
        try:
            assert isinstance(answer(lead, Hello), Hello)
            yield lead, served
        finally:
            lead.close()


def answer(lead: Frames, kind: type[_Answer], order: Message | None = None) -> _Answer:
    """The next message, which is of ``kind``, after ``order``."""
    if order is not None:
        send(lead, order)
    found = take(lead, LIMIT_S)
    assert found is not None
    assert isinstance(found[0], kind), found
    return found[0]


def test_another_image_is_what_the_host_reports(tmp_path: Path, no_driver: None) -> None:
    """In place of the worker's exit code 0."""
    with ordered(tmp_path, lambda _needs: _Boxed()) as (lead, served):
        assert answer(lead, Prepared, PREPARE) == Prepared()
        assert answer(lead, Begun, BEGIN) == Begun()
        found = answer(lead, Ended)
        assert found == Ended(code=1, problem="image sha256:another ran, expected sha256:1")
        answer(lead, Report, Stop())
        send(lead, Goodbye())
        served.result(LIMIT_S)


def test_what_is_kept_between_workers_ends_before_the_command(tmp_path: Path, no_driver: None) -> None:
    """A starter has the run's mark, and would be found after the command's end for as long as the machine is busy."""
    closed: list[str] = []

    class Kept(Local):
        def close(self) -> None:
            closed.append(self.python)

    chosen = iter((Kept("first"), Kept("second")))
    with ordered(tmp_path, lambda _needs: next(chosen)) as (lead, served):
        assert answer(lead, Prepared, PREPARE) == Prepared()
        assert answer(lead, Prepared, PREPARE) == Prepared()
        assert closed == ["first"]
        send(lead, Goodbye())
        served.result(LIMIT_S)
    assert closed == ["first", "second"]


def test_what_cannot_be_chosen_is_the_answer(tmp_path: Path) -> None:
    """The host serves on: the lead decides. The engine is the one that is ordered."""
    asked = []

    def choose(needs: LaunchRequirements) -> Local:
        asked.append((needs.engine, needs.backends, needs.request))
        raise MachineError("podman is not installed")

    request = ContainerRequest(secrets=("HF_TOKEN",))
    with ordered(tmp_path, choose) as (lead, served):
        order = replace(PREPARE, engine="podman", request=request)
        assert answer(lead, Prepared, order) == Prepared(problem="podman is not installed")
        send(lead, Goodbye(problem="over"))
        with pytest.raises(MachineError, match=r"^over$"):
            served.result(LIMIT_S)
    assert asked == [("podman", ("torch",), request)]


def test_a_worker_before_what_starts_it_is_refused(tmp_path: Path) -> None:
    """As is an engine of no known name."""
    for order in (BEGIN, replace(PREPARE, engine="rm -rf")):
        with ordered(tmp_path / type(order).__name__, lambda _needs: _Boxed()) as (lead, served):
            send(lead, order)
            with pytest.raises(MachineError, match=r"it ordered a worker before|can't be taken: prepare\.engine"):
                served.result(LIMIT_S)


def test_a_port_is_held_for_the_server_that_it_is_meant_for(tmp_path: Path, no_driver: None) -> None:
    """Until the part is over: torch's server listens there, nobody else is given it. So is one of the worker's own."""
    with ordered(tmp_path, lambda _needs: _Boxed()) as (lead, served):
        port = answer(lead, FoundPort, FindPort()).port
        answer(lead, Prepared, PREPARE)
        answer(lead, Begun, BEGIN)
        own = int((tmp_path / "1/worker.log").read_text())
        assert own != port
        for held in (port, own):
            assert _refused(held)
            with socket.create_server(("127.0.0.1", held)):
                pass
        answer(lead, Ended)
        answer(lead, Report, Stop())
        send(lead, Goodbye())
        served.result(LIMIT_S)


def _refused(port: int) -> bool:
    """Whether a program that wants just any port can't have this one."""
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def test_a_held_port_is_given_to_nobody() -> None:
    """Neither on request nor by the kernel's choice."""
    with held_port("127.0.0.1") as held, held_port("127.0.0.1") as another:
        assert held.getsockname()[1] != another.getsockname()[1]
        assert _refused(held.getsockname()[1])
    with pytest.raises(OSError, match="assign"):
        held_port("192.0.2.1")
