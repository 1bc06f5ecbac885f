"""The cause of a failed attempt, when ranks end in different ways, and by an engine's own log."""

from __future__ import annotations

import pytest

from pybench.model.wire import Failure
from pybench.run.events.reader import RankLog
from pybench.run.failure import failure_of_exit, root_cause

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
    first: int, other: int, said: Failure | None, cause: str
) -> None:
    """Its SIGTERM comes after the failure that counts."""
    log = REPORT.format(first=first, other=other)
    found = failure_of_exit(1, [RankLog(failure=said), RankLog()], log)
    assert found is not None
    assert found.cause == cause


def test_a_log_with_an_endless_exit_code() -> None:
    """Python refuses to read a number of 5,000 digits; the log is the worker's, and no traceback of the host's."""
    found = failure_of_exit(1, [RankLog()], "exitcode : -" + "9" * 5_000)
    assert found is not None
    assert found.cause == "exit_code"


@pytest.mark.parametrize(
    ("code", "said", "cause"),
    [
        (-9, None, "host_memory"),
        (-9, RAISED, "exception"),  # it reported another end before
        (-11, None, "signal"),
        (1, Failure(cause="engine", message="its process ended", detail=""), "host_memory"),
        (1, Failure(cause="unsupported", message="no such option", detail=""), "unsupported"),
        (1, None, "exit_code"),
    ],
)
def test_a_kill_as_the_hosts_memory_ran_out_is_named(code: int, said: Failure | None, cause: str) -> None:
    """Where something was killed, and the kernel counts a kill of its own."""
    found, alone = (failure_of_exit(code, [RankLog(failure=said)], "nothing", kills) for kills in (2, 0))
    assert found is not None
    assert alone is not None
    assert found.cause == cause
    assert alone.cause != "host_memory"
    why = "the host's memory ran out, and the kernel ended 2 processes: "
    assert found.message == (f"{why}{alone.message}" if cause == "host_memory" else alone.message)


@pytest.mark.parametrize(
    ("code", "said", "log"),
    [
        (-6, None, "terminate called after throwing an instance of 'std::bad_alloc'\n"),
        (1, None, "OpenBLAS error: Memory allocation still failed after 10 retries, giving up.\n"),
        (1, None, "fork: Cannot allocate memory\n"),
        (1, Failure(cause="out_of_memory", message="MemoryError", detail=""), ""),
        (1, Failure(cause="exception", message="OSError: [Errno 12] Cannot allocate memory", detail=""), ""),
        (
            1,
            Failure(
                cause="missing_package",
                message="'_C'; pip install torch",
                detail="failed to map segment from shared object",
            ),
            "",
        ),
        (1, Failure(cause="out_of_memory", message="RuntimeError: DefaultCPUAllocator: can't allocate", detail=""), ""),
        (1, Failure(cause="engine", message="its process ended", detail=""), "MemoryError: std::bad_alloc\n"),
    ],
)
def test_a_limit_of_host_memory_has_one_cause(code: int, said: Failure | None, log: str) -> None:
    """However the worker ended under it, and whatever reported it."""
    failure = failure_of_exit(code, [RankLog(failure=said)], log)
    assert failure is not None
    assert failure.cause == "host_memory"
    assert "pip install" not in failure.message


def test_a_container_that_the_kernel_ended_for_memory() -> None:
    """Docker's client ends with 137."""
    failure = failure_of_exit(137, [RankLog()], "", oom_kills=1)
    assert failure is not None
    assert failure.cause == "host_memory"


def test_a_gpus_memory_is_another_cause() -> None:
    """Though the name of its error ends as Python's own does."""
    said = Failure(cause="out_of_memory", message="OutOfMemoryError: CUDA out of memory", detail="")
    failure = failure_of_exit(1, [RankLog(failure=said)], "")
    assert failure is not None
    assert failure.cause == "out_of_memory"


ENGINE = Failure(cause="engine", message="vLLM's engine process did not start", detail="traceback")
ECHO = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
TOLD = "RuntimeError: Executor worker returned error\n"


@pytest.mark.parametrize(
    ("log", "cause", "message"),
    [
        (
            "(Worker pid=9) ERROR 11-21 [multiproc.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried 8 GiB. "
            "Including non-PyTorch memory, this process has 79.08 GiB memory in use.\n"
            "(EngineCore pid=7) ERROR RuntimeError: cancelled\n" + ECHO,
            "out_of_memory",
            ": torch.OutOfMemoryError: CUDA out of memory. Tried 8 GiB.",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n" + ECHO,
            "out_of_memory",
            ": ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        ),
        ("first\nKeyError: 'x'\nValueError: no such layer\n" + ECHO, "engine", ": ValueError: no such layer"),
        (
            "(EngineCore pid=7) ERROR [multiproc_executor.py:283] Worker proc VllmWorker-1 died unexpectedly, ...\n"
            "(EngineCore pid=7) ERROR [core.py:1138] RuntimeError: Executor failed.\n" + ECHO,
            "engine",
            ": Worker proc VllmWorker-1 died unexpectedly",
        ),
        (
            "[TRT-LLM] [E] RuntimeError: Executor creation failed due to insufficient GPU memory.\n" + TOLD,
            "out_of_memory",
            ": RuntimeError: Executor creation failed due to insufficient GPU memory.",
        ),
        (
            "ValueError: no such layer\nRuntimeError: Executor worker died during initialization\n",
            "engine",
            ": ValueError: no such layer",
        ),
        (ECHO, "engine", ""),
        ("", "engine", ""),
    ],
)
def test_the_engines_own_error_is_the_cause(log: str, cause: str, message: str) -> None:
    """Not what its front end heard of it, and memory before whatever followed from it."""
    found = root_cause(ENGINE, log)
    assert (found.cause, found.message, found.detail) == (cause, ENGINE.message + message, log)


def test_other_failures_keep_their_own() -> None:
    """The worker itself told of them."""
    other = Failure(cause="exception", message="ValueError: no")
    assert root_cause(other, "torch.OutOfMemoryError: CUDA out of memory") is other


@pytest.mark.parametrize("line", ["A" * 65_536, "a." * 32_768, "AError" * 10_922, ": " * 32_768, "A: " * 21_845])
def test_a_hostile_log_costs_little(line: str) -> None:
    """64 KiB without a line break: time grows with the length, not with its square (which took over a minute)."""
    assert root_cause(ENGINE, line).message.startswith(ENGINE.message)
