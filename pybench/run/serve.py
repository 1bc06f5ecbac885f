"""The loop of a host that takes orders."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from pybench.machine.device_lock import lock_names, locked_devices
from pybench.model.errors import MachineError, PybenchError
from pybench.model.machine import Host, Place
from pybench.model.wire import ORDERS_FILE, events_file
from pybench.power.recorder import sampler_unavailable_reason
from pybench.power.trace_file import encode_trace
from pybench.run.engines.base import Launch, Launcher, LaunchRequirements, Meeting, Notify
from pybench.run.engines.choice import Choose
from pybench.run.engines.environment import Redaction, passed_secrets
from pybench.run.engines.process import log_tail
from pybench.run.engines.stage import stage_worker
from pybench.run.events.reader import EventFile, decode_event
from pybench.run.gpu_observation import GpuObservation, is_foreign
from pybench.run.hosts import messages
from pybench.run.hosts.frames import ConnectionLostError, Frames
from pybench.run.hosts.messages import Message, send, take
from pybench.run.hosts.rendezvous import JOIN_LIMIT_S, held_port, on_network
from pybench.run.images.lock import default_lock

_IDLE_S, _RUNNING_S = 1.0, 0.1


class NodeRunner:
    """Takes orders from ``frames`` as ``host``; waits ``wait_s`` at most for another run on its devices."""

    def __init__(
        self, host: Host, frames: Frames, choose: Choose, root: Path, notify: Notify, wait_s: float = JOIN_LIMIT_S
    ) -> None:
        self._host, self._frames, self._choose = host, frames, choose
        self._root, self._notify, self._wait_s = root, notify, wait_s
        self._devices = ExitStack()
        self._launcher: Launcher | None = None
        self._part: Part | None = None
        self._num_parts = 0
        self._held = ExitStack()

    def serve(self) -> None:
        """Do what is ordered until the run is over, with every worker ended. Raises ``MachineError``."""
        try:
            locks = lock_names(self._host.gpu_uuids)
            send(
                self._frames,
                messages.Hello(protocol=messages.PROTOCOL, host=self._host, wall_s=time.time(), locks=locks),
            )
            stage_worker(self._root / "worker")
            while True:
                running = self._part is not None and self._part.code is None
                received = take(self._frames, _RUNNING_S if running else _IDLE_S)
                if received is not None and isinstance(received[0], messages.Goodbye):
                    problem = received[0].problem
                    break
                if received is not None:
                    self._obey(received[0])
                if self._part is not None and self._part.code is None:
                    self._part.follow()
        except ConnectionLostError as error:
            raise MachineError(f"host {self._host.name}: the host that leads is gone: {error}") from error
        except BaseException as error:
            with suppress(ConnectionLostError):
                send(self._frames, messages.Goodbye(problem=_reason(error)))
            raise
        finally:
            self._held.close()
            self._end()
            self._devices.close()
            self._frames.close()
        if problem:
            raise MachineError(problem)

    def _obey(self, message: Message) -> None:
        match message:
            case messages.Ping():
                send(self._frames, messages.Pong(sent_ns=message.sent_ns, there_ns=time.monotonic_ns()))
            case messages.Welcome():
                self._notify(f"host {self._host.name}: takes orders from host {message.lead}")
            case messages.FindPort():
                self._held.close()
                held = self._held.enter_context(held_port(self._frames.local_address))
                send(self._frames, messages.FoundPort(port=held.getsockname()[1]))
            case messages.Prepare():
                send(self._frames, self._prepared(message))
            case messages.Begin():
                send(self._frames, messages.Begun(problem=self._begin(message)))
            case messages.Stop():
                part = self._part
                if part is None:
                    raise ConnectionLostError("it ordered the end of a worker, and none was begun")
                part.end()
                part.report()
                self._end()
                self._held.close()
            case _:
                raise ConnectionLostError(f"it ordered {type(message).__name__.lower()}")

    def _prepared(self, order: messages.Prepare) -> messages.Prepared:
        """Hold the devices and choose what starts workers: the ordered engine, by this host's own lock."""
        began = None if order.container is None else replace(order.container, lock=str(default_lock()))
        needs = LaunchRequirements(
            backends=order.backends,
            device=order.device,
            request=order.request,
            gpu_uuids=self._host.gpu_uuids[: order.num_gpus],
            engine=order.engine,
            began=began,
        )
        owner = f"process {os.getpid()}, host {self._host.name} of a run"
        try:
            self._devices.close()
            self._devices.enter_context(locked_devices(self._host.gpu_uuids, owner, self._notify, self._wait_s))
            self._launcher = self._choose(needs)
            self._devices.callback(self._launcher.close)
        except (OSError, PybenchError) as error:
            return messages.Prepared(problem=_reason(error))
        images = container.images if (container := self._launcher.container) else ()
        listed = (messages.FoundImage(backend=image.backend, digests=image.known_by) for image in images)
        return messages.Prepared(images=tuple(listed))

    def _begin(self, order: messages.Begin) -> str:
        """Start a part; gives why it can't be started, if it can't."""
        self._end()
        launcher = self._launcher
        if launcher is None:
            raise ConnectionLostError("it ordered a worker before what starts it")
        if others := [uuid for uuid in order.gpu_uuids if uuid not in self._host.gpu_uuids]:
            return f"it has no GPU {others[0]}"
        self._num_parts += 1
        folder = self._root / str(self._num_parts)
        folder.mkdir()
        try:
            if self._num_parts == 1:
                launcher.remove_leftovers(f"{order.token.partition('/')[0]}@{self._host.name}")
            self._part = Part(order, launcher, self._host.name, folder, self._frames)
        except (OSError, PybenchError) as error:
            return _reason(error)
        return ""

    def _end(self) -> None:
        if self._part is not None:
            self._part.end()
            self._part = None
            shutil.rmtree(self._root / str(self._num_parts), ignore_errors=True)


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "it was interrupted there"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


_BEAT_S = 1.0
_MAX_LOG = 2**15


class Part:
    """The worker of one order, from its start to the report; ``code`` is ``None`` until its end is reported."""

    def __init__(self, order: messages.Begin, launcher: Launcher, name: str, folder: Path, frames: Frames) -> None:
        """Start it below ``folder``. Raises ``OSError`` or ``MachineError``."""
        self._order, self._frames = order, frames
        self._log = folder / "worker.log"
        self._launcher = launcher
        self._power_reason = sampler_unavailable_reason()
        self._gpus = GpuObservation(order.gpu_uuids, with_power=self._power_reason is None)
        self._redaction = Redaction(passed_secrets(launcher.tuning(os.environ), launcher.secrets))
        self._open = ExitStack()
        held = self._open.enter_context(held_port(frames.local_address))
        address, (mark, _, number) = frames.local_address, order.token.partition("/")
        exchange = folder / "exchange"
        exchange.mkdir()
        self._job = Launch(
            stage=folder.parent / "worker",
            exchange=exchange,
            backend=order.backend,
            num_processes=order.num_ranks,
            places=(Place(host=name, gpu_uuids=order.gpu_uuids),),
            host=name,
            # The lead has another mark: it may be a process of the same machine.
            token=f"{mark}@{name}/{number}",
            host_environment={**os.environ, **on_network(address, os.environ)},
            meeting=Meeting(
                num_nodes=order.num_nodes,
                node_rank=order.node_rank,
                # The address that the host that leads gave, with this host's own IPv6 zone.
                address=order.address.partition("%")[0] + "".join(address.partition("%")[1:]),
                port=order.port,
                local_address=address,
                local_port=held.getsockname()[1],
            ),
        )
        ranks = range(order.first_rank, order.first_rank + order.num_ranks)
        self._files = {rank: EventFile(self._job.exchange / events_file(rank)) for rank in ranks}
        self.code: int | None = None
        self._end_s, self._beat_s = time.monotonic() + order.limit_s, 0.0
        (self._job.exchange / ORDERS_FILE).write_text(order.orders, encoding="utf-8")
        self._open.enter_context(self._gpus)
        try:
            self._worker = launcher.start(self._job, self._log)
        except BaseException:
            self._open.close()
            raise

    def follow(self) -> None:
        """Send what is new. Raises ``ConnectionLostError``, ``MachineError``."""
        code = self._worker.wait(0)
        problem = self._send_events()
        if code is not None and not problem:
            failure = self._launcher.verify(self._worker.container(), self._job, self._log)
            problem = "" if failure is None else failure.message
        if code is None and not problem and time.monotonic() > self._end_s:
            problem = "it ran longer than it may; the host that leads did not end it"
        if problem or code is not None:
            self.code = -1 if code is None else code
            if problem:
                self._worker.end()
            send(self._frames, messages.Ended(code=self.code or (1 if problem else 0), problem=problem))
        elif time.monotonic() - self._beat_s > _BEAT_S:
            self._beat_s = time.monotonic()
            send(self._frames, messages.Beat(power_w=self._gpus.power_w() if self._gpus.samples_power else None))

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
        report = messages.Report(health=health, power_reason=reason, log=log)
        send(self._frames, report, b"" if trace is None else encode_trace(trace))

    def _send_events(self) -> str:
        """New lines of every rank; gives what is wrong with a file that can't be read, if anything is."""
        for rank, file in self._files.items():
            try:
                lines = [self._redaction.of(line.decode(errors="replace")) for line in file.new_lines()]
            except ValueError as error:
                return str(error)
            if rank == self._order.first_rank:
                for text in lines:  # energy counters are read where the rank begins and ends to measure
                    try:
                        event = decode_event(text.encode())
                    except ValueError:
                        continue  # the host that leads refuses it
                    self._gpus.note(0, event)
            if lines:
                send(self._frames, messages.Events(rank=rank), "".join(line + "\n" for line in lines).encode())
        return ""
