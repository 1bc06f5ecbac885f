"""Messages between the hosts of a run, and the lead's connection to each other host.

Each message is an object of JSON with its kind, checked strictly on both sides.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Annotated, Any, TypeVar, get_args

from pydantic import Field, TypeAdapter, ValidationError

from pybench.model.container import ContainerRequest, ContainerSetup
from pybench.model.errors import MachineError
from pybench.model.machine import DeviceKind, Host, HostClock, RoundTrip, clock_of
from pybench.model.record import Health
from pybench.run.engines import ENGINES
from pybench.run.hosts.frames import ConnectionLostError, Frames

PROTOCOL = 3
_MAX_TEXT = 2**16
_MAX_ORDERS = 2**21

Text = Annotated[str, Field(max_length=_MAX_TEXT)]
Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9_.:%-]+$")]
EngineName = Annotated[str, Field(pattern=f"^({'|'.join(ENGINES)})$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0, le=2**20)]
Digest = Annotated[str, Field(pattern=r"^[a-z0-9]{1,20}:[0-9a-f]{16,128}$")]


@dataclass(frozen=True, kw_only=True)
class Hello:
    """A host's first message: its wall clock in s since 1970, and names of the ``locks`` of its devices."""

    protocol: int
    host: Host
    wall_s: float
    locks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Welcome:
    """The host takes part; ``lead`` is the name of the host that leads."""

    lead: Name


@dataclass(frozen=True, kw_only=True)
class Goodbye:
    """Nothing more comes. ``problem`` is why the run ended for this host; empty where it went to its end."""

    problem: Text = ""


@dataclass(frozen=True, kw_only=True)
class Ping:
    """To be answered at once, with the time."""

    sent_ns: int


@dataclass(frozen=True, kw_only=True)
class Pong:
    """The answer: ``there_ns`` is the host's CLOCK_MONOTONIC."""

    sent_ns: int
    there_ns: int


@dataclass(frozen=True, kw_only=True)
class FindPort:
    """Find a port that is free on the host, for the ranks of a job to meet at."""


@dataclass(frozen=True, kw_only=True)
class FoundPort:
    """It is free, and held until the next worker has ended."""

    port: Port


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Choose what starts workers: ``engine``, with the images of ``backends`` by the host's own lock.

    ``request`` is the suite's; the secrets in it are variables that the host passes on from its own environment.
    ``container`` is the lead's setup, ``None`` without containers; ``num_gpus`` are those of the largest point.
    """

    engine: EngineName
    backends: tuple[Name, ...]
    device: DeviceKind
    request: ContainerRequest
    num_gpus: Count
    container: ContainerSetup | None


@dataclass(frozen=True, kw_only=True)
class FoundImage:
    """The image of a backend on the host: every digest that names it."""

    backend: Name
    digests: tuple[Digest, ...]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The host can start workers in ``images``, or can't, for the reason in ``problem``."""

    images: tuple[FoundImage, ...] = ()
    problem: Text = ""


@dataclass(frozen=True, kw_only=True)
class Begin:
    """Start a worker for a part of a job's ranks. ``orders`` is the content of its file of orders.

    ``first_rank`` and ``num_ranks`` are those of this host, ``node_rank`` is its place of ``num_nodes``; all meet at
    ``address`` and ``port``. After ``limit_s`` the host ends it by itself.
    """

    token: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,400}/[0-9a-f]{16}$")]
    orders: Annotated[str, Field(max_length=_MAX_ORDERS)]
    backend: Name
    gpu_uuids: tuple[Name, ...]
    first_rank: Count
    num_ranks: Annotated[int, Field(ge=1, le=1024)]
    node_rank: Count
    num_nodes: Annotated[int, Field(ge=1, le=1024)]
    address: Name
    port: Port
    limit_s: Annotated[float, Field(gt=0, le=10**7)]


@dataclass(frozen=True, kw_only=True)
class Begun:
    """The worker is started, or can't be, for the reason in ``problem``."""

    problem: Text = ""


@dataclass(frozen=True, kw_only=True)
class Events:
    """New lines of a rank's events, in the message's body."""

    rank: Count


@dataclass(frozen=True, kw_only=True)
class Beat:
    """The host is there, at least every few seconds while a worker runs; ``power_w`` of all its GPUs, if known."""

    power_w: float | None


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The worker ended, with an exit code (negative: a signal), or by its host for the reason in ``problem``."""

    code: int
    problem: Text = ""


@dataclass(frozen=True, kw_only=True)
class Stop:
    """End the worker, if it still runs, and report."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The job is over on this host. The body is the power trace, empty for the reason in ``power_reason``."""

    health: Health | None
    power_reason: Text | None
    log: Text


_Order = Welcome | Ping | FindPort | Prepare | Begin | Stop
_Answer = Hello | Pong | FoundPort | Prepared | Begun | Events | Beat | Ended | Report
Message = _Order | _Answer | Goodbye
_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in get_args(Message)}


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_KINDS[name])


def send(frames: Frames, message: Message, body: bytes = b"") -> None:
    """Send a message. Raises ``ConnectionLostError``."""
    frames.send(json.dumps([type(message).__name__.lower(), asdict(message)]).encode(), body)


def take(frames: Frames, limit_s: float) -> tuple[Message, bytes] | None:
    """The next message and its body, ``None`` after ``limit_s``. Raises ``ConnectionLostError``."""
    frame = frames.take(limit_s)
    return None if frame is None else (decode(frame[0]), frame[1])


def decode(head: bytes) -> Message:
    """A message from its JSON. Raises ``ConnectionLostError`` for anything else."""
    try:
        kind, values = json.loads(head)
        message: Message = _adapter(kind).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConnectionLostError(f"a message that can't be taken: {str(kind)[:40]}.{where}: {first['msg']}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConnectionLostError(f"a message that can't be taken: {str(error)[:200]}") from error
    return message


ANSWER_LIMIT_S = 60.0
"""A host answers within this, also one that has a worker to end or NVML to wait for."""
_NUM_ROUND_TRIPS = 30

_Kind = TypeVar("_Kind")


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
            received = take(self.frames, limit_s)
        except ConnectionLostError as error:
            raise self._lost(str(error)) from error
        if received is None:
            return None
        self.heard_s = time.monotonic()
        if isinstance(received[0], Goodbye):
            raise self._lost(received[0].problem or "it left")
        return received

    def answer(self, kind: type[_Kind], limit_s: float | None = None) -> tuple[_Kind, bytes]:
        """The answer to an order; other messages of a worker are dropped. Raises ``HostLostError``."""
        limit_s = self.limit_s if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        while (left_s := deadline - time.monotonic()) > 0:
            received = self.next(left_s)
            if received is None:
                continue
            message, body = received
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
