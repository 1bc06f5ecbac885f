"""The worker's contract: work orders in, events out, each one line of JSON; the names of their files.

All times are integer nanoseconds on CLOCK_MONOTONIC, which host and container share. Every rank writes its own event
stream, so an event needs no rank; the header opens it and carries one. A worker process works through a *session*: its
orders one after another, a line each in ``ORDERS_FILE``. A point's part of the stream begins with the header and ends
with the result. Then every rank waits until the host makes the file :func:`go_file`, and begins the next point.

A worker is untrusted: the host checks every event (``pybench.run.events``: its form in ``line``, its content in
``contract``). Anything else than this module describes fails the attempt with the cause ``protocol``.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pybench.model.workloads.generate import RequestLengths
from pybench.model.workloads.registry import AnySettings, settings_from_json

STEADY_STEPS = 3
STEADY_FRACTION = 0.05
_LONG_STEP_NS, _STEADY_LONG_STEPS = 1_000_000_000, 2
"""Steps of a second or more average so many kernels that two are enough."""


def are_steady(durations_ns: Sequence[int]) -> bool:
    """Whether they are ``STEADY_STEPS`` or more, or two of a second, all within ``STEADY_FRACTION`` of their median."""
    are_long = bool(durations_ns) and min(durations_ns) >= _LONG_STEP_NS
    if len(durations_ns) < (_STEADY_LONG_STEPS if are_long else STEADY_STEPS):
        return False
    median = statistics.median(durations_ns)
    return all(abs(duration - median) <= STEADY_FRACTION * median for duration in durations_ns)


def are_scattered(durations_ns: Sequence[int]) -> bool:
    """Whether half of ``STEADY_STEPS`` or more lie beyond ``STEADY_FRACTION`` of their median; few slow ones may."""
    if len(durations_ns) < STEADY_STEPS:
        return False
    median = statistics.median(durations_ns)
    return statistics.median(abs(duration - median) for duration in durations_ns) > STEADY_FRACTION * median


# 1: first form. 2: an event's line is an object of one key, the event's kind.
PROTOCOL_VERSION = 2

ORDERS_FILE = "orders.jsonl"

SCRATCH_FOLDER = "scratch"
"""Name, inside the exchange folder, of the folder for a worker's large files, which nothing of is kept."""


def events_file(rank: int) -> str:
    """Name, inside the exchange folder, of the file that a rank appends its events to."""
    return f"events.{rank}.jsonl"


def go_file(place: int) -> str:
    """Name of the file whose being there lets the ranks begin with the session's order ``place``, counted from 0."""
    return f"go.{place}"


FailureCause = Literal[
    "out_of_memory",  # an allocation of device memory failed
    "host_memory",  # host memory ran out: a failed allocation, or a process that the kernel ended
    "missing_package",  # the worker's Python lacks the backend
    "unsupported",  # the backend can't run this combination
    "engine",  # a process that the backend started itself failed
    "wrong_result",  # what the worker computed failed a check of its own
    "collective_timeout",  # ranks waited too long for one that did not come
    "exception",  # anything else the worker could still report
    "exit_code",  # the worker ended without a result
    "signal",  # something killed the worker
    "time_limit",  # the host ended it
    "protocol",  # events that break the worker's contract
    "launch",  # the worker never started
    "identity",  # another image ran than the one that was requested
]
PhaseName = Literal["prepare", "warmup", "measure", "finish"]


@dataclass(frozen=True, kw_only=True)
class WorkOrder:
    """One point for a worker. ``architecture`` is a Hugging Face config mapping, ``None`` where no model runs.

    At ``end_ns`` of CLOCK_MONOTONIC on the leading host the run's time is over; ``None``: never. Measuring then ends
    with the last step that fits.
    """

    point_id: str
    settings: AnySettings
    architecture: dict[str, Any] | None
    device: Literal["cuda", "cpu"]
    steps: int
    max_warmup_steps: int
    dither_ms: float = 0.0
    collective_timeout_s: float = 600.0
    end_ns: int | None = None
    protocol: int = PROTOCOL_VERSION

    def to_json(self) -> str:
        """One JSON object on one line."""
        # Without an end it is the order of versions that had none, which runs of theirs are verified by.
        values = {**asdict(self), "settings": self.settings.to_json()}
        return json.dumps({name: value for name, value in values.items() if name != "end_ns" or value is not None})

    @classmethod
    def from_json(cls, text: str) -> WorkOrder:
        """Read a work order. Raises ``ValueError``, ``KeyError`` or ``TypeError`` on anything else."""
        values = json.loads(text)
        if values["protocol"] != PROTOCOL_VERSION:
            raise ValueError(f"work order speaks protocol {values['protocol']}, this worker {PROTOCOL_VERSION}")
        return cls(**{**values, "settings": settings_from_json(values["settings"])})


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of one step, by all ranks of a replica together."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    samples: int = 0


@dataclass(frozen=True, kw_only=True)
class Header:
    """Who speaks. ``time_offset_ns`` is the time namespace's offset of CLOCK_MONOTONIC; ``packages`` are versions.

    ``driver`` is the kernel module's version, ``cuda_library`` the file of libcuda in use. ``forward_compatible`` is
    whether that library is newer than the module (CUDA's forward compatibility); ``None`` where it can't be known.
    ``device_uuids`` are all GPUs of a rank that drives several. ``replica`` numbers the models that share
    nothing: ranks report the work of their own.
    """

    rank: int
    world_size: int
    pid: int
    boot_id: str
    time_offset_ns: int
    python: str
    packages: dict[str, str]
    device: str
    device_name: str
    device_uuid: str | None = None
    driver: str | None = None
    cuda_library: str | None = None
    forward_compatible: bool | None = None
    device_uuids: tuple[str, ...] = ()
    replica: int = 0
    protocol: int = PROTOCOL_VERSION

    @property
    def all_uuids(self) -> tuple[str, ...]:
        """GPUs of this rank, by UUID; none on a CPU."""
        return self.device_uuids or ((self.device_uuid,) if self.device_uuid else ())


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase begins at ``start_ns``; the one before it ends there."""

    name: PhaseName
    start_ns: int


@dataclass(frozen=True, kw_only=True)
class RequestTimes:
    """One request of a step: when it arrived, when its first and its last token were ready."""

    arrival_ns: int
    first_token_ns: int
    last_token_ns: int
    prompt_tokens: int
    output_tokens: int


def work_of(requests: Sequence[RequestTimes | RequestLengths]) -> Work:
    """Work of a step that finishes these requests."""
    return Work(
        prompt_tokens=sum(request.prompt_tokens for request in requests),
        output_tokens=sum(request.output_tokens for request in requests),
        samples=len(requests),
    )


@dataclass(frozen=True, kw_only=True)
class Span:
    """A part of a step on one rank. ``name`` is one of the workload's phases; ranks begin it together.

    ``device_bytes`` are in use at its end by all processes on the fullest of the rank's GPUs, on a CPU by the rank and
    its children. ``host_bytes`` is host memory that holds device data then, pinned on GPUs.
    """

    name: str
    start_ns: int
    end_ns: int
    device_bytes: int | None = None
    host_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """One iteration.

    ``token_end_ns``: when each decode round's tokens were ready (generation only). ``requests``: each request's times,
    where they differ. ``values``: metrics of this step that the backend itself measured, by name. ``spans``: its parts,
    one after another, where the workload has phases.
    """

    index: int
    phase: Literal["warmup", "measure"]
    start_ns: int
    end_ns: int
    work: Work
    token_end_ns: tuple[int, ...] = ()
    requests: tuple[RequestTimes, ...] = ()
    loss: float | None = None
    values: dict[str, float] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()

    @property
    def duration_ns(self) -> int:
        """Length in nanoseconds."""
        return self.end_ns - self.start_ns

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return self.duration_ns / 1e9


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A value that only the backend can measure, such as peak memory."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """The rank finished the point. ``steady`` is whether the warm-up met its rule before its ceiling."""

    warmup_steps: int
    steady: bool


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The rank could not finish. Also what the host writes when a worker left no word."""

    cause: FailureCause
    message: str
    detail: str = field(default="", repr=False)


Event = Header | Phase | Step | Metric | Result | Failure
EVENT_KINDS: dict[str, type[Event]] = {
    "header": Header,
    "phase": Phase,
    "step": Step,
    "metric": Metric,
    "result": Result,
    "error": Failure,
}
_NAMES = {kind: name for name, kind in EVENT_KINDS.items()}


def encode_event(event: Event) -> str:
    """One line of an event stream, without its newline."""
    return json.dumps({_NAMES[type(event)]: asdict(event)})


STARTER_VARIABLE = "PYBENCH_STARTER"
"""Set for a worker to the id of the process that started it, where both see the same ids."""
SHARED_VARIABLE = "PYBENCH_SHARED"
"""Set for a worker to a folder that all workers of its run and backend may write, if there is one."""
ROOM_VARIABLE = "PYBENCH_ROOM"
"""Set for a process that forks workers: bytes that their environments are shown in."""

_FINISHING_NS = 1_000_000_000
"""The report after the last step."""


def fits(step_ns: int, now_ns: int, end_ns: int | None) -> bool:
    """Whether a step from ``now_ns`` on ends before ``end_ns``: CLOCK_MONOTONIC of the leading host."""
    return end_ns is None or now_ns + step_ns + _FINISHING_NS <= end_ns


_NS_PER_S = 1_000_000_000


def monotonic_offset_ns(timens_offsets: str) -> int:
    """CLOCK_MONOTONIC's offset in ns by ``/proc/self/timens_offsets`` (time_namespaces(7)); 0 where it names none."""
    for line in timens_offsets.splitlines():
        clock, seconds, nanoseconds = line.split()
        if clock in {"monotonic", "1"}:
            return int(seconds) * _NS_PER_S + int(nanoseconds)
    return 0
