"""The lock of a run's folder: for its one writer, or for those that copy its files."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from pybench.files.run.errors import AbsentError, run_folder_errors
from pybench.files.safe_folder import opened_file, opened_folder
from pybench.model.errors import RunFolderError

_FILE = "lock"


def writing(path: Path) -> AbstractContextManager[None]:
    """Hold the run at ``path`` for one writer. Raises ``RunFolderError`` when another process has it."""
    return _held(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)


@contextmanager
def copying(path: Path) -> Iterator[None]:
    """Keep writers of the run at ``path`` out; takes no right to write there. Raises ``RunFolderError`` for a writer.

    A folder without the file, as out of a bundle, has no writer.
    """
    with ExitStack() as held:
        with suppress(AbsentError):
            held.enter_context(_held(path, os.O_RDONLY, fcntl.LOCK_SH))
        yield


@contextmanager
def _held(path: Path, flags: int, kind: int) -> Iterator[None]:
    with ExitStack() as opened:
        with run_folder_errors(path, "lock the run"):
            folder = opened.enter_context(opened_folder(path))
            file = opened.enter_context(opened_file(folder, _FILE, flags))
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFolderError(f"{path}: another pybench is writing this run; wait for it to end") from None
        yield
