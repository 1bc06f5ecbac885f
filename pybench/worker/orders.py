"""The orders of this process's session, and the host's word to go on with the next."""

from __future__ import annotations

import time
from pathlib import Path

from pybench.model.wire import ORDERS_FILE, WorkOrder, go_file

_POLL_S = 0.01
# A host that sends nothing for so long is gone; between two orders it has a second's work.
_PATIENCE_S = 600.0


def read_orders(exchange: Path) -> tuple[WorkOrder, ...]:
    """All orders, the first one first. Raises ``ValueError``, ``KeyError`` or ``TypeError`` on anything else."""
    lines = (exchange / ORDERS_FILE).read_text(encoding="utf-8").splitlines()
    return tuple(WorkOrder.from_json(line) for line in lines)


def wait_for_go(exchange: Path, place: int) -> None:
    """Return once the host has kept the previous order's results. Raises ``TimeoutError`` when it sends nothing."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (exchange / go_file(place)).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the host did not release order {place} within {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)
