"""Files inside a folder that somebody else may have prepared: nothing is read or written outside of it.

Every name is opened relative to the folder's descriptor, and no link is followed. Files are read up to a limit, and
only regular ones; they are written whole or not at all, and are on disk when a function returns.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK_BYTES = 2**20
_UPWARDS = ("", ".", "..")


@contextmanager
def opened_folder(path: Path | str, parent: int | None = None) -> Iterator[int]:
    """Descriptor of a folder, below that of ``parent`` if given. Raises ``OSError``, also where it is a link."""
    folder = os.open(path, _FOLDER, dir_fd=parent)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def opened_file(folder: int, name: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Descriptor of a regular file. Raises ``OSError`` where it is absent, a link, a pipe or a device."""
    file = os.open(name, flags | _FILE, 0o644, dir_fd=folder)
    try:
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", name)
        yield file
    finally:
        os.close(file)


def read_file(folder: int, name: str, max_bytes: int) -> bytes:
    """Content of a file. Raises ``OSError`` as :func:`opened_file`, and where it is larger than ``max_bytes``."""
    with opened_file(folder, name) as file:
        if os.fstat(file).st_size > max_bytes:
            raise OSError(errno.EOVERFLOW, f"Larger than {max_bytes} bytes", name)
        data = bytearray()
        while chunk := os.read(file, min(_CHUNK_BYTES, max_bytes + 1 - len(data))):
            data += chunk
            if len(data) > max_bytes:
                raise OSError(errno.EOVERFLOW, f"Larger than {max_bytes} bytes", name)
        return bytes(data)


def read_named(path: Path, max_bytes: int) -> bytes:
    """Content of a file that the user names. Raises as :func:`read_file`, ``ValueError``, ``RuntimeError``."""
    whole = path.resolve()
    try:
        with opened_folder(whole.parent) as folder:
            return read_file(folder, whole.name, max_bytes)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_below(path: Path, name: str, max_bytes: int) -> bytes:
    """Content of a file at a relative path ``name`` below ``path``. Raises ``OSError`` as :func:`read_file`."""
    *parents, last = name.split("/")
    if any(part in _UPWARDS for part in (*parents, last)) or "\0" in name:
        raise OSError(errno.EINVAL, "Not a path below the folder", name)
    with ExitStack() as opened:
        folder = opened.enter_context(opened_folder(path))
        for part in parents:
            folder = opened.enter_context(opened_folder(part, folder))
        return read_file(folder, last, max_bytes)


def write_file(folder: int, name: str, data: bytes) -> None:
    """Write a file under another name and onto the disk, then put it in the place of ``name``. Raises ``OSError``."""
    scratch = f".{name}.{os.getpid()}"
    remove_file(folder, scratch)
    with opened_file(folder, scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        try:
            write_all(file, data)
            os.fsync(file)
            os.rename(scratch, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            remove_file(folder, scratch)
            raise
    os.fsync(folder)


def write_all(file: int, data: bytes) -> None:
    """Write all of ``data``. Raises ``OSError``."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def remove_file(folder: int, name: str) -> None:
    """Remove a file, or a link without its target, if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
