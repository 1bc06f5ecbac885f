"""The lead's way to one host that joined: orders there, answers and events back."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TypeVar

from pybench.model.errors import MachineError
from pybench.model.machine import Host, HostClock, RoundTrip, clock_of
from pybench.run.hosts.frames import ConnectionLostError, Frames
from pybench.run.hosts.messages import Beat, Ended, Events, Goodbye, Message, Ping, Pong, send, take

ANSWER_LIMIT_S = 60.0
"""A host answers within this, also one that has a worker to end or NVML to wait for."""
_NUM_ROUND_TRIPS = 30

_Answer = TypeVar("_Answer")


class HostLostError(MachineError):
    """A host of the run ended, or does not answer."""


@dataclass
class HostLink:
    """One host and the connection to it."""

    host: Host
    frames: Frames
    limit_s: float = ANSWER_LIMIT_S
    heard_s: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        """The host's name."""
        return self.host.name

    def order(self, message: Message) -> None:
        """Send ``message``. Raises ``HostLostError``."""
        try:
            send(self.frames, message)
        except ConnectionLostError as error:
            raise self._lost(str(error)) from error

    def next(self, limit_s: float) -> tuple[Message, bytes] | None:
        """The next message within ``limit_s``, if one came. Raises ``HostLostError``."""
        try:
            found = take(self.frames, limit_s)
        except ConnectionLostError as error:
            raise self._lost(str(error)) from error
        if found is None:
            return None
        self.heard_s = time.monotonic()
        if isinstance(found[0], Goodbye):
            raise self._lost(found[0].problem or "it left")
        return found

    def answer(self, kind: type[_Answer], limit_s: float | None = None) -> tuple[_Answer, bytes]:
        """The answer to what was ordered; what else a worker still sent is dropped. Raises ``HostLostError``."""
        limit_s = self.limit_s if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        while (left_s := deadline - time.monotonic()) > 0:
            found = self.next(left_s)
            if found is None:
                continue
            message, body = found
            if isinstance(message, kind):
                return message, body
            if not isinstance(message, Beat | Events | Ended | Pong):
                raise self._lost(f"it answered {type(message).__name__.lower()}")
        raise self._lost(f"no answer within {limit_s:g} s")

    def clock(self) -> HostClock:
        """The host's clock less this one's, by messages to and fro. Raises ``HostLostError``."""
        trips = []
        for _ in range(_NUM_ROUND_TRIPS):
            sent_ns = time.monotonic_ns()
            self.order(Ping(sent_ns=sent_ns))
            pong, _ = self.answer(Pong)
            back_ns = time.monotonic_ns()
            if pong.sent_ns == sent_ns:
                trips.append(RoundTrip(sent_ns, pong.there_ns, back_ns))
        try:
            return clock_of(trips)
        except ValueError as error:
            raise self._lost(str(error)) from error

    def _lost(self, problem: str) -> HostLostError:
        return HostLostError(f"host {self.name}: {problem}")
