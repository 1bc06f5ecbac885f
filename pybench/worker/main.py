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

from pybench.model.wire import Event, Header, Phase, WorkOrder
from pybench.worker.backend import Backend, Session, failure_of, missing_package
from pybench.worker.exchange import Device, EventStream, read_header, read_orders, wait_for_go
from pybench.worker.gpus import NvlinkTraffic
from pybench.worker.imports import import_before_engine, spared_by_collector
from pybench.worker.ranks import Ranks, place_scratch, rank_numbers
from pybench.worker.timing import TimingLoop


def run_rank(exchange: Path) -> int:
    """Work through the session in ``exchange`` and report every event there. Returns the exit code."""
    orders = read_orders(exchange)
    place_scratch(exchange)
    with closing(EventStream(exchange, rank_numbers().rank)) as events:
        try:
            backend = import_backend(orders[0])
        except ImportError as error:
            events.write(blind_header(orders[0]))
            events.write(missing_package(error, orders[0].settings.backend))
            return 1
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
    """Import the order's backend. Raises ``ImportError`` when a package is missing."""
    with spared_by_collector():
        import_before_engine(order.settings)
        return cast("Backend", importlib.import_module(f"pybench.worker.backends.{order.settings.backend}.entry"))


def blind_header(order: WorkOrder) -> Header:
    """Header of a rank that could not reach its device."""
    numbers = rank_numbers()
    return read_header(numbers.rank, numbers.world_size, Device(order.device, "unknown"))


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
