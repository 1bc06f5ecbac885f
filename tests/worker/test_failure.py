"""Causes of failures, and clock offsets."""

from __future__ import annotations

import pytest

from pybench.model.clock import monotonic_offset_ns
from pybench.worker.backend import UnsupportedError
from pybench.worker.failure import failure_of


@pytest.mark.parametrize(
    ("error", "cause", "message"),
    [
        (MemoryError(), "out_of_memory", "MemoryError"),
        (RuntimeError("CUDA out of memory."), "out_of_memory", "RuntimeError: CUDA out of memory."),
        (UnsupportedError("not this"), "unsupported", "not this"),
        (ValueError("bad"), "exception", "ValueError: bad"),
    ],
)
def test_each_error_has_its_cause(error: Exception, cause: str, message: str) -> None:
    """The message leads with the error's kind; the traceback is the detail."""
    failure = failure_of(error)
    assert (failure.cause, failure.message) == (cause, message)
    assert type(error).__name__ in failure.detail


def test_monotonic_offset_adds_nanoseconds() -> None:
    """Seconds and nanoseconds of the monotonic line; boottime is another clock."""
    assert monotonic_offset_ns("monotonic 2 5\nboottime 9 9\n") == 2_000_000_005
    assert monotonic_offset_ns("1 -2 5\n") == -1_999_999_995
    assert monotonic_offset_ns("") == 0
