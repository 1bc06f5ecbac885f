"""Where workers in containers keep what they compile, for the run's next ones: on this host's own disk while it lasts.

A run's folder may be on a network's, where libraries that compile in several ranks at once wait for locks.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def compiled_code(run_mark: str, backend: str) -> Path | None:
    """The folder for a backend of the run with this mark, made where there is none.

    ``None`` where the disk for temporary files takes none, or runs no code.
    """
    folder = _folder(run_mark)
    path = folder / backend
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if not _is_own(folder):
            return None
        path.mkdir(exist_ok=True)
        return None if os.statvfs(path).f_flag & os.ST_NOEXEC else path
    except OSError:
        return None


def remove_compiled_code(run_mark: str) -> None:
    """Remove the run's folders, also those of a killed runner."""
    folder = _folder(run_mark)
    if _is_own(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _folder(run_mark: str) -> Path:
    return Path(tempfile.gettempdir()) / f"pybench-{run_mark}-compiled"


def _is_own(folder: Path) -> bool:
    """Whether it is this user's folder, not a link to another: anybody may write where temporary files are."""
    with suppress(OSError):
        found = folder.lstat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False
