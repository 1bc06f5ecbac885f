"""One rank from its first work order to its last event."""

from __future__ import annotations

import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

from pybench.model.backend import BACKENDS
from pybench.model.wire import Event, Phase, WorkOrder
from pybench.worker.backend import Backend, MissingPackageError, Session, failure_of
from pybench.worker.exchange import Device, EventStream, read_header, read_orders, wait_for_go
from pybench.worker.gpus import NvlinkTraffic
from pybench.worker.imports import import_before_engine, needs_package, spared_by_collector
from pybench.worker.ranks import Ranks, place_scratch, rank_numbers
from pybench.worker.timing import TimingLoop


def run_rank(exchange: Path) -> int:
    """Work through the session in ``exchange`` and report every event there. Returns the exit code."""
    orders = read_orders(exchange)
    place_scratch(exchange)
    with closing(EventStream(exchange, rank_numbers().rank)) as events:
        try:
            backend = import_backend(orders[0])
        except MissingPackageError as error:
            return report_missing(error, orders[0], events)
        try:
            run_session(orders, backend, events, partial(wait_for_go, exchange))
        except Exception as error:  # noqa: BLE001 - whatever broke is the point's result
            traceback.print_exc(file=sys.stderr)
            events.write(failure_of(error))
            sys.stderr.flush()
            # Other ranks may be inside a collective: leaving without clean-up is what frees them.
            os._exit(1)
    return 0


def import_backend(order: WorkOrder) -> Backend:
    """Import the order's backend. Raises :class:`MissingPackageError` when a package is missing."""
    name = order.settings.backend
    with spared_by_collector(), needs_package(f"backend {name!r}", remedy=BACKENDS[name].remedy):
        import_before_engine(order.settings)
        return cast("Backend", importlib.import_module(f"pybench.worker.backends.{name}.entry"))


def report_missing(error: MissingPackageError, order: WorkOrder, events: EventStream) -> int:
    """Report a backend whose import failed, by a rank that could not reach its device. Returns the exit code."""
    numbers = rank_numbers()
    events.write(read_header(numbers.rank, numbers.world_size, Device(order.device, "unknown")))
    events.write(failure_of(error))
    return 1


def run_session(
    orders: Sequence[WorkOrder], backend: Backend, events: EventStream, wait_for_go: Callable[[int], None]
) -> None:
    """Join the ranks, prepare what all orders share, then measure one after another."""
    prepare_ns = time.monotonic_ns()
    with backend.join(orders[0]) as (ranks, device):
        header = read_header(ranks.rank, ranks.world_size, device)
        events.write(header)
        events.write(Phase(name="prepare", start_ns=prepare_ns))
        gpu = device.uuid or device.name
        with ranks.watched(gpu, events), backend.prepare(orders[0], ranks) as session:
            for place, order in enumerate(orders):
                if place > 0:
                    wait_for_go(place)
                    events.write(header)
                    events.write(Phase(name="prepare", start_ns=time.monotonic_ns()))
                run_order(order, session, ranks, events, header.all_uuids)


def run_order(order: WorkOrder, session: Session, ranks: Ranks, events: EventStream, uuids: Sequence[str]) -> None:
    """Measure one point. Its result comes last, when nothing of it is left that could fail.

    A point of one GPU of ``uuids`` sends nothing to another.
    """
    traffic = NvlinkTraffic(uuids if order.settings.num_gpus > 1 else ())

    def report(event: Event) -> None:
        traffic.note(event)
        events.write(event)

    with session(order) as workload:
        result = TimingLoop(workload, ranks, report).run(order)
        for metric in (*workload.metrics(), *traffic.metrics()):
            events.write(metric)
    events.write(result)
