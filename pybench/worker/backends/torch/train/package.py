"""A package that only some points need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pybench.worker.backend import MissingPackageError


@contextmanager
def needs_package(asked_by: str, extra: str = "train") -> Iterator[None]:
    """Turn a failed import into :class:`MissingPackageError`, which says who asked for it and how to get it."""
    try:
        yield
    except ImportError as error:
        name = error.name or str(error)
        raise MissingPackageError(
            f"{asked_by} needs the package {name!r}, which the worker's Python can't import; "
            f"install it there: pip install 'pybench[{extra}]'"
        ) from error
