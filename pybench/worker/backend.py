"""The interface of a backend, and the causes of its failures."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pybench.model.backend import is_out_of_memory, without_allocator
from pybench.model.wire import Failure, FailureCause, Metric, RequestTimes, Span, Work, WorkOrder
from pybench.model.workloads.generate import Generate
from pybench.worker.exchange import Device
from pybench.worker.ranks import Ranks


class UnsupportedError(Exception):
    """The backend can't run this combination; the message names what it can."""


class EngineError(Exception):
    """A process that the backend started itself failed; its own words are in the log."""


class WrongResultError(Exception):
    """A check of the workload's own failed; the message names what is wrong."""


class MissingPackageError(Exception):
    """This point needs a package that the worker's Python lacks; the message names it and the remedy."""


def generation_of(order: WorkOrder) -> tuple[Generate, dict[str, Any]]:
    """Settings and architecture of an order to generate. Raises :class:`UnsupportedError` for any other order."""
    settings, architecture = order.settings, order.architecture
    if not isinstance(settings, Generate) or architecture is None:
        raise UnsupportedError(f"{order.point_id}: backend {settings.backend} has no {settings.workload} workload")
    return settings, architecture


@dataclass(frozen=True)
class StepOutcome:
    """Outcome of one step, as :class:`~pybench.model.wire.Step` reports it.

    ``work`` is the work of this rank's replica. ``late_values`` gives the values that take time to read: it is called
    once the step's end is known.
    """

    work: Work
    token_end_ns: tuple[int, ...] = ()
    requests: tuple[RequestTimes, ...] = ()
    loss: float | None = None
    values: dict[str, float] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    late_values: Callable[[], dict[str, float]] = dict


class Workload(Protocol):
    """A model ready to work."""

    def step(self, index: int) -> StepOutcome:
        """Do one step; return only after the device is done."""

    def metrics(self) -> tuple[Metric, ...]:
        """Values that only the backend knows, by default none; read once, after the last step."""
        return ()


Session = Callable[[WorkOrder], AbstractContextManager[Workload]]
"""A context for each point's workload, with the model or engine that the process keeps for all points.

Counts and peak memory start anew with each point.
"""


class Backend(Protocol):
    """One library under test; each backend module defines these two functions."""

    def join(self, order: WorkOrder) -> AbstractContextManager[tuple[Ranks, Device]]:
        """Take this rank's device and meet the other ranks."""

    def prepare(self, order: WorkOrder, ranks: Ranks) -> AbstractContextManager[Session]:
        """Build what ``order`` and those that share its process need; not measured."""


def cause_of(error: BaseException) -> FailureCause:
    """Cause of an error that ended a rank after its backend was imported."""
    if isinstance(error, UnsupportedError):
        return "unsupported"
    if isinstance(error, EngineError):
        # The engine's front end may hold its worker's error; where it does not, the host looks into the log.
        link: BaseException | None = error
        while link is not None and not _is_of_memory(link):
            link = link.__cause__
        return "engine" if link is None else "out_of_memory"
    if isinstance(error, MissingPackageError):
        return "missing_package"
    if isinstance(error, WrongResultError):
        return "wrong_result"
    return "out_of_memory" if _is_of_memory(error) else "exception"


def _is_of_memory(error: BaseException) -> bool:
    """torch.cuda.OutOfMemoryError is a RuntimeError; other libraries raise a plain one with these words."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and is_out_of_memory(str(error)))


def failure_of(error: BaseException) -> Failure:
    """The event for ``error``, with its traceback as detail."""
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    text = without_allocator(str(error).strip())
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, UnsupportedError | EngineError | MissingPackageError | WrongResultError):
        message = text
    # Bytes of a file's name that are no UTF-8 are half characters in a message, which no event may have.
    message, detail = (text.encode("utf-8", "backslashreplace").decode() for text in (message, detail))
    return Failure(cause=cause_of(error), message=message, detail=detail)
