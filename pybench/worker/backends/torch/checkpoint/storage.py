"""Where checkpoints lie: room on the disk, size of the files, what the page cache holds of them."""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pybench.model.memory_text import amount_text
from pybench.worker.backend import UnsupportedError

# Headers, names and alignment beside the tensors, and a disk should not be filled to its last block.
_MORE_FRACTION, _MORE_BYTES = 0.05, 64 * 2**20


def require_room(folder: Path, num_bytes: int) -> None:
    """Raise :class:`UnsupportedError` if the disk of ``folder`` has no room for a checkpoint of this size."""
    needed = int(num_bytes * (1 + _MORE_FRACTION)) + _MORE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UnsupportedError(
            f"{folder}: a checkpoint needs {amount_text(needed)}, {amount_text(free)} are free; nothing was written: "
            "free some, give --runs a folder on a larger disk, or save less (contents)"
        )


def files_in(folder: Path) -> list[Path]:
    """Every regular file below ``folder``."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def size_bytes(folder: Path) -> int:
    """Of all files."""
    return sum(path.stat().st_size for path in files_in(folder))


def drop_page_cache(folder: Path) -> None:
    """Have the kernel let go of the files' pages, which are on disk by now; some file systems (tmpfs) keep them."""
    for path in files_in(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def page_cache_fraction(folder: Path) -> float:
    """Share of the files' pages that are in memory: 1 is a warm load, 0 a cold one (mincore(2))."""
    found = [pages for path in files_in(folder) for pages in _pages(path)]
    resident, total = (sum(column) for column in zip(*found, strict=True)) if found else (0, 0)
    return resident / total if total else 0.0


def _pages(path: Path) -> Iterator[tuple[int, int]]:
    """Resident pages and all pages of a file; nothing of an empty one."""
    size = path.stat().st_size
    if not size:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped,
    ):
        count = -(-size // mmap.PAGESIZE)
        vector = (ctypes.c_ubyte * count)()
        start = ctypes.c_char.from_buffer(mapped)
        try:
            if libc.mincore(ctypes.byref(start), ctypes.c_size_t(size), vector) != 0:
                raise OSError(ctypes.get_errno(), "mincore failed", str(path))
        finally:
            del start
        yield sum(byte & 1 for byte in bytes(vector)), count
