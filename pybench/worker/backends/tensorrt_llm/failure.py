"""TensorRT-LLM's errors that only pass on what broke another of its processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tensorrt_llm.executor.utils import RequestError

from pybench.model.backend import BACKENDS
from pybench.worker.backend import EngineError

_NOT_STARTED = BACKENDS["tensorrt_llm"].log_words.not_started


@contextmanager
def engine_starts() -> Iterator[None]:
    """Raise :class:`EngineError` for an error that reports a worker which did not start."""
    try:
        yield
    except RuntimeError as error:
        if not any(words in str(error) for words in _NOT_STARTED):
            raise
        raise EngineError(f"TensorRT-LLM's worker did not start: {_named(error.__cause__ or error)}") from error


@contextmanager
def engine_works() -> Iterator[None]:
    """Raise :class:`EngineError` for an error that the library passes on from its worker.

    ``RequestError`` is a step's that failed, by request; any other ``RuntimeError`` the worker's own end.
    """
    try:
        yield
    except RequestError as error:
        raise EngineError(f"TensorRT-LLM's worker failed at work: {error}") from error
    except RuntimeError as error:
        raise EngineError(f"TensorRT-LLM's worker died at work: {_named(error)}") from error


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
