"""Full disks: one form of error, and a check for room before it is needed."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pybench.model.errors import MachineError, is_disk_full

# Engines repeat the error text of the kernel; Go writes it in lower case.
_FULL = re.compile(f"{os.strerror(errno.ENOSPC)}|{os.strerror(errno.EDQUOT)}", re.IGNORECASE)


@contextmanager
def disk_full_error(folder: Path, remedy: str) -> Iterator[None]:
    """Turn an error of a full disk in ``folder`` into a ``MachineError`` that says where, how full, and what next."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise MachineError(f"{folder}: {error.strerror} ({room_text(folder)}); {remedy}") from error


def require_room(folder: Path, num_bytes: int) -> None:
    """Allocate ``num_bytes`` on the disk and free them. Raises ``OSError`` where there are fewer, also by quota."""
    scratch = folder / "room"
    try:
        with scratch.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, num_bytes)
    finally:
        scratch.unlink(missing_ok=True)


def room_text(folder: Path) -> str:
    """How much is left of the disk of ``folder``, or of what there is of its path."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    left = os.statvfs(there)
    no_inode = left.f_files > 0 and left.f_favail == 0
    return f"{left.f_bavail * left.f_frsize:,} bytes free" + (", no room for one more file" if no_inode else "")


def reports_full_disk(words: str) -> bool:
    """Whether an error text of another program reports a full disk."""
    return bool(_FULL.search(words))
