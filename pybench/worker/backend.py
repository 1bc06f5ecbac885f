"""The interface of a backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pybench.model.wire import Metric, RequestTimes, Span, Work, WorkOrder
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import BackendName
from pybench.worker.header import Device
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
        """Values that only the backend knows; read once, after the last step."""


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


def backend_module(name: BackendName) -> str:
    """The module of a backend, imported only when a point needs it."""
    return f"pybench.worker.backends.{name}.entry"
