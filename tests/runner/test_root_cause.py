"""An engine's own words, found in its log."""

from __future__ import annotations

import pytest

from pybench.model.wire import Failure
from pybench.runner.root_cause import root_cause

ENGINE = Failure(cause="engine", message="vLLM's engine process did not start", detail="traceback")
ECHO = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
TOLD = "RuntimeError: Executor worker returned error\n"


@pytest.mark.parametrize(
    ("log", "cause", "message"),
    [
        (
            "(Worker pid=9) ERROR 11-21 [multiproc.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried 8 GiB\n"
            "(EngineCore pid=7) ERROR RuntimeError: cancelled\n" + ECHO,
            "out_of_memory",
            ": torch.OutOfMemoryError: CUDA out of memory. Tried 8 GiB",
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
