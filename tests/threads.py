"""Threads that a test's calls leave to end by themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.processes import wait_for


@contextmanager
def ended_threads() -> Iterator[None]:
    """At its end, wait until every thread that began within it has ended: none of them meets the next test's driver."""
    before = {*threading.enumerate()}
    yield
    wait_for(lambda: {*threading.enumerate()} <= before)
