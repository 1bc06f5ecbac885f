"""A system call that fails, once or for good: one line, exit code 3, nothing recorded is lost, no verdict is false.

``tests/benchmarks/test_system_call_faults.py`` lets every distinct call fail; here are a few of each kind.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.fault_sweep import OPENS, WRITES, Fault, FaultSweep, faults

NUM_SAMPLES = 12
# What keeps a run: each with the errors that it is likeliest to have.
KEEPING = ("write RUN/journal.jsonl", "fsync RUN/journal.jsonl", "renameat RUN/.results.json.N", "openN RUN/attempts")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, native: Callable[..., Path]) -> Iterator[FaultSweep]:
    folder = tmp_path_factory.mktemp("faults")
    library = native(folder / "faults.so", "tests/native/system_call_faults.cpp", "-shared", "-fPIC")
    made = FaultSweep(folder, library)
    yield made
    made.close()


@pytest.fixture(scope="module")
def every_fault(sweep: FaultSweep) -> list[Fault]:
    return list(faults(sweep.calls()))


def test_calls_are_found(every_fault: list[Fault]) -> None:
    """A run makes hundreds of distinct calls; were none found, none could fail."""
    described = {str(fault).partition(" #")[0] for fault in every_fault}
    assert len(described) > 100
    assert {call for call in KEEPING if not any(one.startswith(call) for one in described)} == set()


def test_a_sample_of_calls(sweep: FaultSweep, every_fault: list[Fault]) -> None:
    """From a fixed seed."""
    chosen = random.Random(15).sample(every_fault, NUM_SAMPLES)
    assert {str(fault): problem for fault in chosen if (problem := sweep.problem(fault))} == {}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_the_disk_fails_for_good_at_the_journal(sweep: FaultSweep, every_fault: list[Fault], error: int) -> None:
    """At the second of four records: the first is kept, and the run goes on once the disk is well."""
    call = next(fault.call for fault in every_fault if str(fault).startswith("write RUN/journal.jsonl"))
    assert sweep.problem(Fault(call, 1, error, WRITES, goes_on=True)) is None


def test_a_disk_that_fails_at_the_lock(sweep: FaultSweep, every_fault: list[Fault]) -> None:
    """The machine's trouble, not the user's."""
    locks = [fault for fault in every_fault if str(fault).startswith("flock RUN/lock")]
    assert {str(fault): problem for fault in locks[:2] if (problem := sweep.problem(fault)) is not None} == {}
    assert locks


def test_no_file_is_left_to_open(sweep: FaultSweep, every_fault: list[Fault]) -> None:
    """From the first worker on."""
    call = next(fault.call for fault in every_fault if "/worker.log" in fault.call and fault.call.startswith("open"))
    assert sweep.problem(Fault(call, 0, errno.EMFILE, OPENS, goes_on=True)) is None


def test_a_fault_that_is_not_reached_shows(sweep: FaultSweep) -> None:
    """No problem found because nothing failed would be no evidence."""
    assert sweep.problem(Fault("write /no/such/file", 0, errno.EIO)) == ""
