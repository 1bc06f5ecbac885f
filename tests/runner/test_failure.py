"""The cause of a failed attempt, when ranks end in different ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.model.wire import Failure
from pybench.runner.events import RankLog
from pybench.runner.failure import failure_of_exit

# As torch 2.11 writes it; the first failure that it saw comes last.
REPORT = """
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : {other} (pid: 2614)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {first} (pid: 2615)
"""
RAISED = Failure(cause="exception", message="ValueError: broken", detail="traceback")


@pytest.mark.parametrize(
    ("first", "other", "said", "cause"),
    [
        (1, -15, RAISED, "exception"),  # torchrun ended rank 0 for what rank 1 had done
        (-9, 1, RAISED, "signal"),  # rank 0 only lost its peer
        (1, -9, RAISED, "signal"),  # seen in the wrong order
        (-15, 1, RAISED, "signal"),  # somebody else's SIGTERM
        (-9, -15, None, "signal"),
        (1, -15, None, "exit_code"),
    ],
)
def test_torchrun_ending_the_other_ranks_is_not_the_cause(
    tmp_path: Path, first: int, other: int, said: Failure | None, cause: str
) -> None:
    """Its SIGTERM comes after the failure that counts."""
    log = tmp_path / "worker.log"
    log.write_text(REPORT.format(first=first, other=other))
    found = failure_of_exit(1, [RankLog(failure=said), RankLog()], log)
    assert found is not None
    assert found.cause == cause


def test_a_log_with_an_endless_exit_code(tmp_path: Path) -> None:
    """Python refuses to read a number of 5,000 digits; the log is the worker's, and no traceback of the host's."""
    log = tmp_path / "worker.log"
    log.write_text("exitcode : -" + "9" * 5_000 + "\n")
    found = failure_of_exit(1, [RankLog()], log)
    assert found is not None
    assert found.cause == "exit_code"
