"""A part of a job on this host: a worker by order of the host that leads, its events sent there, its GPUs observed."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from pybench.model.host import Place
from pybench.model.wire import ORDERS_FILE, events_file
from pybench.power.recorder import sampler_unavailable_reason
from pybench.power.trace_file import encode_trace
from pybench.run.engines.base import Launch, Launcher, Meeting
from pybench.run.engines.environment import passed_secrets
from pybench.run.engines.foreign import is_foreign
from pybench.run.engines.log import log_tail
from pybench.run.engines.redaction import Redaction
from pybench.run.events.file import EventFile
from pybench.run.events.line import decode_event
from pybench.run.gpu_observation import GpuObservation
from pybench.run.hosts.frames import Frames
from pybench.run.hosts.interface import held_port, in_own_zone, on_network, port_of
from pybench.run.hosts.messages import Beat, Begin, Ended, Events, Report, send

_BEAT_S = 1.0
_MAX_LOG = 2**15


class Part:
    """The worker of one order, from its start to the report."""

    def __init__(self, order: Begin, launcher: Launcher, name: str, folder: Path, frames: Frames) -> None:
        """Start it below ``folder``. Raises ``OSError`` or ``MachineError``."""
        self._order, self._frames = order, frames
        self._log = folder / "worker.log"
        self._launcher = launcher
        self._power_reason = sampler_unavailable_reason()
        self._gpus = GpuObservation(order.gpu_uuids, with_power=self._power_reason is None)
        self._redaction = Redaction(passed_secrets(launcher.tuning(os.environ), launcher.secrets))
        self._open = ExitStack()
        held = self._open.enter_context(held_port(frames.local_address))
        self._job = _job(order, name, folder, (frames.local_address, port_of(held)))
        ranks = range(order.first_rank, order.first_rank + order.num_ranks)
        self._files = {rank: EventFile(self._job.exchange / events_file(rank)) for rank in ranks}
        self._code: int | None = None
        self._end_s, self._beat_s = time.monotonic() + order.limit_s, 0.0
        (self._job.exchange / ORDERS_FILE).write_text(order.orders, encoding="utf-8")
        self._open.enter_context(self._gpus)
        try:
            self._worker = launcher.start(self._job, self._log)
        except BaseException:
            self._open.close()
            raise

    @property
    def is_running(self) -> bool:
        """Whether its end was not yet reported."""
        return self._code is None

    def follow(self) -> None:
        """Send what is new. Raises ``ConnectionLostError``, ``MachineError``."""
        code = self._worker.wait(0)
        problem = self._send_events()
        if code is not None and not problem:
            problem = self._unlike_plan()
        if code is None and not problem and time.monotonic() > self._end_s:
            problem = "it ran longer than it may; the host that leads did not end it"
        if problem or code is not None:
            self._code = -1 if code is None else code
            if problem:
                self._worker.end()
            send(self._frames, Ended(code=self._code or (1 if problem else 0), problem=problem))
        elif time.monotonic() - self._beat_s > _BEAT_S:
            self._beat_s = time.monotonic()
            send(self._frames, Beat(power_w=self._gpus.power_w() if self._gpus.samples_power else None))

    def end(self) -> None:
        """End the worker and stop observing. Raises ``MachineError`` where it can't be ended."""
        try:
            self._worker.end()
        finally:
            self._open.close()

    def report(self) -> None:
        """Send what is left of the events, then the report; :meth:`end` comes before."""
        self._send_events()
        trace = self._gpus.trace
        reason = None if trace is not None else (self._power_reason or "no GPU takes part")
        container = self._worker.container()
        health = self._gpus.health(partial(is_foreign, run_mark=self._job.run_mark, container=container))
        log = self._redaction.of(log_tail(self._log))[-_MAX_LOG:]
        report = Report(health=health, power_reason=reason, log=log)
        send(self._frames, report, b"" if trace is None else encode_trace(trace))

    def _unlike_plan(self) -> str:
        """Why the worker did not run in the container that was planned for it; empty where it did."""
        failure = self._launcher.verify(self._worker.container(), self._job, self._log)
        return "" if failure is None else failure.message

    def _send_events(self) -> str:
        """New lines of every rank; gives what is wrong with a file that can't be read, if anything is."""
        for rank, file in self._files.items():
            try:
                lines = [self._redaction.of(line.decode(errors="replace")) for line in file.new_lines()]
            except ValueError as error:
                return str(error)
            if rank == self._order.first_rank:
                self._anchor(lines)
            if lines:
                send(self._frames, Events(rank=rank), "".join(line + "\n" for line in lines).encode())
        return ""

    def _anchor(self, lines: list[str]) -> None:
        """Have energy counters read where this host's first rank begins and ends to measure."""
        for line in lines:
            try:
                event = decode_event(line.encode())
            except ValueError:
                continue  # the host that leads refuses it
            self._gpus.note(0, event)


def _job(order: Begin, name: str, folder: Path, local: tuple[str, int]) -> Launch:
    mark, _, number = order.token.partition("/")
    exchange = folder / "exchange"
    exchange.mkdir()
    return Launch(
        stage=folder.parent / "worker",
        exchange=exchange,
        backend=order.backend,
        num_processes=order.num_ranks,
        places=(Place(host=name, gpu_uuids=order.gpu_uuids),),
        host=name,
        # Another mark than that of the host that leads, which may be a process of the same machine.
        token=f"{mark}@{name}/{number}",
        host_environment={**os.environ, **on_network(local[0], os.environ)},
        meeting=Meeting(
            num_nodes=order.num_nodes,
            node_rank=order.node_rank,
            address=in_own_zone(order.address, local[0]),
            port=order.port,
            local_address=local[0],
            local_port=local[1],
        ),
    )
