"""A package that only some points need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pybench.model.backend import install
from pybench.worker.backend import MissingPackageError
from pybench.worker.imports import without_collector

# The extras of pybench whose packages the image of containers/train has.
_IN_IMAGE = ("train", "deepspeed")
_BUILD = ", or build its image: pybench images build train"


@contextmanager
def needs_package(needed_by: str, extra: str = "train") -> Iterator[None]:
    """Turn a failed import into :class:`MissingPackageError`, which names what needs it and how to get it."""
    try:
        with without_collector():
            yield
    except ImportError as error:
        raise MissingPackageError(
            f"{needed_by} needs the package {_absent(error)!r}, which the worker's Python can't import; "
            f"{install(extra)}{_BUILD if extra in _IN_IMAGE else ''}"
        ) from error


def _absent(error: ImportError) -> str:
    """The package at the bottom of it: some libraries report a failed import in words of their own."""
    cause = error.__cause__
    return _absent(cause) if isinstance(cause, ImportError) else error.name or str(error)
