"""A folder for what one process needs on a host: gone when it ends, and after SIGKILL when the next one begins."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# A folder as young may have an owner who has not locked it yet.
_YOUNG_S = 60.0


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A folder of this process, named with ``prefix``; this user's that no process holds any more are removed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # another user's, or gone meanwhile
            _remove_abandoned(folder)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(held)


def _remove_abandoned(folder: Path) -> None:
    """Raises ``OSError`` where a process holds the folder, or it is another user's."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(opened)
        if found.st_uid != os.getuid() or time.time() - found.st_mtime < _YOUNG_S:
            return
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(opened)
