"""Causes of failures, and clock offsets."""

from __future__ import annotations

import pytest

from pybench.model.wire import encode_event, monotonic_offset_ns
from pybench.run.events.reader import decode_event
from pybench.worker.backend import UnsupportedError, failure_of


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


def test_a_name_that_is_no_utf8_is_written_out() -> None:
    """Else the host reads no event, and reports a breach of the protocol in place of the failure."""
    failure = failure_of(FileNotFoundError(2, "No such file", "caf\udce9"))
    assert "caf\\udce9" in failure.message
    assert decode_event(encode_event(failure)) == failure


def test_monotonic_offset_adds_nanoseconds() -> None:
    """Seconds and nanoseconds of the monotonic line; boottime is another clock."""
    assert monotonic_offset_ns("monotonic 2 5\nboottime 9 9\n") == 2_000_000_005
    assert monotonic_offset_ns("1 -2 5\n") == -1_999_999_995
    assert monotonic_offset_ns("") == 0


def test_the_message_of_full_memory_leaves_out_its_allocator() -> None:
    """What torch 2.11 wrote on an H100; the detail has all of it."""
    text = (
        "CUDA out of memory. Tried to allocate 1002.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 382.19 "
        "MiB is free. Including non-PyTorch memory, this process has 78.80 GiB memory in use. Of the allocated memory "
        "77.63 GiB is allocated by PyTorch, and 512.93 MiB is reserved by PyTorch but unallocated."
    )
    failure = failure_of(RuntimeError(text))
    assert failure.cause == "out_of_memory"
    assert failure.message.endswith("of which 382.19 MiB is free.")
    assert text in str(failure.detail)
