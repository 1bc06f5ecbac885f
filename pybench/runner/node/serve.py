"""The loop of a host that takes orders."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pybench.engines.base import Launcher
from pybench.engines.hosts.frames import ConnectionLostError, Frames
from pybench.engines.hosts.interface import free_port
from pybench.engines.hosts.messages import (
    PROTOCOL,
    Begin,
    Begun,
    FindPort,
    FoundPort,
    Goodbye,
    Hello,
    Message,
    Ping,
    Pong,
    Stop,
    Welcome,
    send,
    take,
)
from pybench.engines.stage import stage_worker
from pybench.machine.device_lock import locked_devices
from pybench.model.errors import MachineError, PybenchError
from pybench.model.host import Host
from pybench.runner.node.part import Part
from pybench.runner.run import signals_interrupt

Notify = Callable[[str], None]
StartWith = Callable[[tuple[str, ...]], Launcher]
"""A launcher that passes secrets on, by their names."""
_IDLE_S, _RUNNING_S = 1.0, 0.1


class NodeRunner:
    """Takes orders from ``frames`` as host ``host``, with files below ``root``."""

    def __init__(self, host: Host, frames: Frames, start_with: StartWith, root: Path, notify: Notify) -> None:
        self._host, self._frames, self._start_with = host, frames, start_with
        self._root, self._notify = root, notify
        self._part: Part | None = None
        self._num_parts = 0

    def serve(self) -> None:
        """Do what is ordered until the run is over.

        Raises ``MachineError`` when it ends with a problem, or the host that leads is gone; every worker has ended.
        """
        try:
            send(self._frames, Hello(protocol=PROTOCOL, host=self._host, wall_s=time.time()))
            stage_worker(self._root / "worker")
            while (problem := self._turn()) is None:
                pass
        except ConnectionLostError as error:
            raise MachineError(f"host {self._host.name}: the host that leads is gone: {error}") from error
        except BaseException as error:
            with suppress(ConnectionLostError):
                send(self._frames, Goodbye(problem=_reason(error)))
            raise
        finally:
            self._end()
            self._frames.close()
        if problem:
            raise MachineError(problem)

    def _turn(self) -> str | None:
        """One message, if one comes, and what the worker has news of; the problem of a goodbye, empty for none."""
        running = self._part is not None and self._part.is_running
        found = take(self._frames, _RUNNING_S if running else _IDLE_S)
        if found is not None and isinstance(found[0], Goodbye):
            return found[0].problem
        if found is not None:
            self._obey(found[0])
        if self._part is not None and self._part.is_running:
            self._part.follow()
        return None

    def _obey(self, message: Message) -> None:
        match message:
            case Ping():
                send(self._frames, Pong(sent_ns=message.sent_ns, there_ns=time.monotonic_ns()))
            case Welcome():
                self._notify(f"host {self._host.name}: takes orders from host {message.lead}")
            case FindPort():
                send(self._frames, FoundPort(port=free_port(self._frames.local_address)))
            case Begin():
                send(self._frames, Begun(problem=self._begin(message)))
            case Stop():
                self._stop()
            case _:
                raise ConnectionLostError(f"it ordered {type(message).__name__.lower()}")

    def _begin(self, order: Begin) -> str:
        """Start a part; gives why it can't be started, if it can't."""
        self._end()
        others = [uuid for uuid in order.gpu_uuids if uuid not in self._host.gpu_uuids]
        missing = [name for name in order.secrets if name not in os.environ]
        if others or missing:
            lacks = f"no GPU {others[0]}" if others else f"no variable {missing[0]}, which the suite needs as a secret"
            return f"it has {lacks}"
        launcher = self._start_with(order.secrets)
        self._num_parts += 1
        folder = self._root / str(self._num_parts)
        folder.mkdir()
        try:
            if self._num_parts == 1:
                launcher.remove_leftovers(f"{order.token.partition('/')[0]}@{self._host.name}")
            self._part = Part(order, launcher, self._host.name, folder, self._frames)
        except (OSError, PybenchError) as error:
            return str(error.strerror or error) if isinstance(error, OSError) else str(error)
        return ""

    def _stop(self) -> None:
        part = self._part
        if part is None:
            raise ConnectionLostError("it ordered the end of a worker, and none was begun")
        part.end()
        part.report()
        self._end()

    def _end(self) -> None:
        if self._part is not None:
            self._part.end()
            self._part = None
            shutil.rmtree(self._root / str(self._num_parts), ignore_errors=True)


def _reason(error: BaseException) -> str:
    return "it was interrupted there" if isinstance(error, KeyboardInterrupt) else str(error)


def serve_run(host: Host, joined: Callable[[], Frames], start_with: StartWith, notify: Notify) -> None:
    """Join a run once no other one holds this host's devices, and take its orders to the end.

    Raises ``MachineError``, or ``KeyboardInterrupt`` with nothing left running.
    """
    owner = f"process {os.getpid()}, host {host.name} of a run"
    with (
        signals_interrupt(),
        locked_devices(host.gpu_uuids, owner, notify),
        tempfile.TemporaryDirectory(prefix="pybench-node-") as root,
    ):
        NodeRunner(host, joined(), start_with, Path(root), notify).serve()
