"""Which cause an exception is reported under."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from pybench.model.backend import BACKENDS, is_out_of_memory, without_allocator
from pybench.model.wire import Failure, FailureCause
from pybench.model.workloads.settings import BackendName
from pybench.worker.backend import EngineError, MissingPackageError, UnsupportedError, WrongResultError


def cause_of(error: BaseException) -> FailureCause:
    """Cause of an error that ended a rank after its backend was imported."""
    if isinstance(error, UnsupportedError):
        return "unsupported"
    if isinstance(error, EngineError):
        # The engine's front end may hold its worker's error; where it does not, the host looks into the log.
        return "out_of_memory" if any(_is_of_memory(link) for link in _chain(error)) else "engine"
    if isinstance(error, MissingPackageError):
        return "missing_package"
    if isinstance(error, WrongResultError):
        return "wrong_result"
    return "out_of_memory" if _is_of_memory(error) else "exception"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_of_memory(error: BaseException) -> bool:
    """torch.cuda.OutOfMemoryError is a RuntimeError; other libraries raise a plain one with these words."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and is_out_of_memory(str(error))


def failure_of(error: BaseException) -> Failure:
    """The event for ``error``, with its traceback as detail."""
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    text = without_allocator(str(error).strip())
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if isinstance(error, UnsupportedError | EngineError | MissingPackageError | WrongResultError):
        message = text
    return Failure(cause=cause_of(error), message=_whole(message), detail=_whole(detail))


def _whole(text: str) -> str:
    """Bytes of a file's name that are no UTF-8 are half characters in a message, which no event may have."""
    return text.encode("utf-8", "backslashreplace").decode()


def missing_package(error: ImportError, backend: BackendName) -> Failure:
    """The event for a backend whose import failed."""
    name = error.name or str(error)
    return Failure(
        cause="missing_package",
        message=f"backend {backend!r} needs the package {name!r}, which the worker's Python can't import; "
        f"{BACKENDS[backend].remedy}",
        detail="".join(traceback.format_exception(type(error), error, error.__traceback__)),
    )
