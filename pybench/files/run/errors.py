"""What the system refuses in a run's folder, as an error that names the place and the next step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pybench.model.errors import RunFolderError, is_machine_fault

DEFECTS = (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)
"""What reading a folder raises that is no run of this pybench."""


class AbsentError(RunFolderError):
    """A file of the run's folder is not there."""


@contextmanager
def run_folder_errors(path: Path, doing: str, remedy: str = "") -> Iterator[None]:
    """Make what the system refuses a ``RunFolderError`` with what could not be done, and what to do next.

    A fault of the machine stays an ``OSError``.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise AbsentError(f"{path}: cannot {doing}: {error.strerror}{remedy}") from error
    except OSError as error:
        if is_machine_fault(error):
            raise OSError(error.errno, f"cannot {doing}: {error.strerror}", str(path)) from error
        raise RunFolderError(f"{path}: cannot {doing}: {error.strerror}{remedy}") from error
