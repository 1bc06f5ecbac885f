"""What hosts of a run send each other: each message an object of JSON with its kind, checked strictly on both sides."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter, ValidationError

from pybench.model.container import ContainerRequest, ContainerSetup
from pybench.model.machine import DeviceKind, Host
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
    ``container`` is the lead's setup, ``None`` without containers; ``num_gpus`` are those of the largest
    point.
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
_ADAPTERS: dict[str, TypeAdapter[Any]] = {name: TypeAdapter(kind) for name, kind in _KINDS.items()}


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
        found: Message = _ADAPTERS[kind].validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConnectionLostError(f"a message that can't be taken: {str(kind)[:40]}.{where}: {first['msg']}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConnectionLostError(f"a message that can't be taken: {str(error)[:200]}") from error
    return found
