"""An engine's death in one line: what killed it stands in the log, in its own process's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vllm.v1.engine.exceptions import EngineDeadError

from pybench.worker.backend import EngineError

# vllm/v1/engine/utils.py, wait_for_engine_startup
_NOT_STARTED = "Engine core initialization failed"


@contextmanager
def engine_told() -> Iterator[None]:
    """Raise :class:`EngineError` where vLLM says no more than that another process broke."""
    try:
        yield
    except EngineDeadError as error:
        raise EngineError("vLLM's engine process died at work") from error
    except RuntimeError as error:
        if _NOT_STARTED not in str(error):
            raise
        raise EngineError("vLLM's engine process did not start") from error
