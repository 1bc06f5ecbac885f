"""Disks that are full, broken or read-only: one form of error, a check for room; scratch folders that go at the end."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pybench.model.errors import REMEDIES, MachineError, is_disk_full, is_machine_fault

# Engines repeat the error text of the kernel; Go writes it in lower case.
_FULL = re.compile(f"{os.strerror(errno.ENOSPC)}|{os.strerror(errno.EDQUOT)}", re.IGNORECASE)

# Somebody moved, removed or replaced the folder meanwhile: whether it holds all that was recorded is not known.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_CLOSED = (errno.EACCES, errno.EPERM)
_REMEDIES = {**REMEDIES, **dict.fromkeys(_CLOSED, "make it writable"), **dict.fromkeys(_GONE, "put it back")}
_SCRATCH = "room"


class NoRoomError(OSError):
    """The disk has fewer than ``num_bytes``, which are needed."""

    def __init__(self, code: int, reason: str, num_bytes: int) -> None:
        super().__init__(code, reason)
        self.num_bytes = num_bytes


@contextmanager
def disk_error(folder: Path, kept: str, then: str) -> Iterator[None]:
    """Turn a fault of the machine in ``folder`` into a ``MachineError``: where, what, what is ``kept``, what next.

    So with a folder that somebody moved, removed or closed meanwhile. A full disk is reported with its free bytes.
    The remedy ends with ``then``.
    """
    try:
        yield
    except OSError as error:
        if not is_machine_fault(error) and error.errno not in (*_GONE, *_CLOSED):
            raise
        names = [name for name in (error.filename, error.filename2) if isinstance(name, str)]
        where = next((name for name in names if Path(name).is_relative_to(folder)), folder)
        needed = f" of {error.num_bytes:,} needed" if isinstance(error, NoRoomError) else ""
        room = f" ({room_text(folder)}{needed})" if is_disk_full(error) else ""
        known = f"{kept}: " if kept and error.errno not in _GONE else ""
        remedy = _REMEDIES.get(error.errno or 0, _REMEDIES[errno.EIO])
        raise MachineError(f"{where}: {error.strerror}{room}; {known}{remedy}, then{then}") from error


def require_room(folder: Path, num_bytes: int) -> None:
    """Allocate ``num_bytes`` on the disk and free them. Raises ``NoRoomError`` where there are fewer, also by quota.

    What else has the name of the file for it, a link to another one also, makes way.
    """
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _remove_scratch(inside)
        file = os.open(_SCRATCH, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=inside)
        try:
            os.posix_fallocate(file, 0, num_bytes)
        except OSError as error:
            if is_disk_full(error):
                raise NoRoomError(error.errno or errno.ENOSPC, error.strerror or "", num_bytes) from error
            raise
        finally:
            os.close(file)
            _remove_scratch(inside)
    finally:
        os.close(inside)


def _remove_scratch(folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_SCRATCH, dir_fd=folder)


def room_text(folder: Path) -> str:
    """How much is left of the disk of ``folder``, or of what there is of its path."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    left = os.statvfs(there)
    no_inode = left.f_files > 0 and left.f_favail == 0
    return f"{left.f_bavail * left.f_frsize:,} bytes free" + (", no room for one more file" if no_inode else "")


def reports_full_disk(words: str) -> bool:
    """Whether an error text of another program reports a full disk."""
    return bool(_FULL.search(words))


# A folder as young may have an owner who has not locked it yet.
_YOUNG_S = 60.0


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A folder of this process, named with ``prefix``; this user's that no process holds any more are removed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # another user's, held by a process, or gone meanwhile
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(opened)
                if status.st_uid == os.getuid() and time.time() - status.st_mtime >= _YOUNG_S:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(opened)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(held)
