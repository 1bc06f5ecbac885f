"""One rank from its work order to its last event."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import traceback
from contextlib import closing
from pathlib import Path
from typing import cast

from pybench.model.backend import BACKENDS as TRAITS
from pybench.model.wire import Header, Phase, WorkOrder
from pybench.worker.backend import BACKENDS, Backend
from pybench.worker.events import EventStream
from pybench.worker.failure import failure_of, missing_package
from pybench.worker.header import Device, read_header
from pybench.worker.process import die_with_parent
from pybench.worker.ranks import rank_numbers
from pybench.worker.timing import TimingLoop


def run_rank(exchange: Path) -> int:
    """Run the order in ``exchange`` and report every event there. Returns the exit code."""
    die_with_parent(signal.SIGKILL)
    order = WorkOrder.from_json((exchange / "point.json").read_text(encoding="utf-8"))
    with closing(EventStream(exchange, rank_numbers().rank)) as events:
        backend = import_backend(order, events)
        if backend is None:
            return 1
        try:
            run_order(order, backend, events)
        except Exception as error:  # noqa: BLE001 - whatever broke is the point's result
            traceback.print_exc(file=sys.stderr)
            events.write(failure_of(error))
            sys.stderr.flush()
            # Other ranks may be inside a collective: leaving without clean-up is what frees them.
            os._exit(1)
    return 0


def import_backend(order: WorkOrder, events: EventStream) -> Backend | None:
    """Import the order's backend; report and return ``None`` when a package is missing."""
    name = order.settings.backend
    try:
        return cast("Backend", importlib.import_module(BACKENDS[name]))
    except ImportError as error:
        events.write(blind_header(order))
        events.write(missing_package(error, name))
        return None


def blind_header(order: WorkOrder) -> Header:
    """Header of a rank that could not reach its device."""
    numbers = rank_numbers()
    packages = TRAITS[order.settings.backend].all_packages
    return read_header(numbers.rank, numbers.world_size, packages, Device(order.device, "unknown"))


def run_order(order: WorkOrder, backend: Backend, events: EventStream) -> None:
    """Join the ranks, prepare, measure."""
    prepare_ns = time.monotonic_ns()
    with backend.join(order) as (ranks, device):
        packages = TRAITS[order.settings.backend].all_packages
        events.write(read_header(ranks.rank, ranks.world_size, packages, device))
        events.write(Phase(name="prepare", start_ns=prepare_ns))
        with backend.prepare(order, ranks) as workload:
            result = TimingLoop(workload, ranks, events.write).run(order)
            for metric in workload.metrics():
                events.write(metric)
            events.write(result)
