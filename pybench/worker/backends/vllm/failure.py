"""vLLM's errors that only report the failure of another of its processes; the cause stands in the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vllm.v1.engine.exceptions import EngineDeadError

from pybench.model.backend import BACKENDS
from pybench.worker.backend import EngineError

_NOT_STARTED = BACKENDS["vllm"].log_words.not_started


@contextmanager
def engine_errors() -> Iterator[None]:
    """Raise :class:`EngineError` for an error that vLLM raises because another of its processes failed."""
    try:
        yield
    except EngineDeadError as error:
        raise EngineError("vLLM's engine process died at work") from error
    except RuntimeError as error:
        if not any(words in str(error) for words in _NOT_STARTED):
            raise
        raise EngineError("vLLM's engine process did not start") from error
