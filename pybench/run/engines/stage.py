"""The worker's source as its own folder: all that a worker sees of pybench, read-only to it.

A foreign image has its own Python and must not meet the host's packages, so the folder holds the wire types and the
worker, nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import pybench

_STAGED = ("model", "worker")
_MAX_FILE_BYTES = 2**24
WORKER_SCRIPT = Path("pybench", "worker", "__main__.py")
"""Where the script that starts a worker is, below the stage."""


def stage_worker(folder: Path) -> None:
    """Copy the worker below ``folder``. Raises ``OSError`` as copying does."""
    for name, file in _installed_files():
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    # Whatever this user's umask: inside a container, nobody reads it.
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def worker_digest(folder: Path) -> str:
    """SHA-256 over names and bytes of all files below ``folder``, links by their names. Raises ``OSError``."""
    walked = os.walk(folder, onerror=_refuse)
    paths = (Path(parent, name) for parent, folders, files in walked for name in (*folders, *files))
    kept = ((path.relative_to(folder).as_posix(), path) for path in paths if path.is_symlink() or not path.is_dir())
    return _digest(kept)


def _refuse(error: OSError) -> None:
    raise error


def installed_digest() -> str:
    """What :func:`worker_digest` is for a worker staged from this installation."""
    return _digest(_installed_files())


def _installed_files() -> Iterator[tuple[str, Path]]:
    """Names below the stage, and files of this installation."""
    package = Path(pybench.__file__).parent
    for file in (package / "__init__.py", *(path for room in _STAGED for path in (package / room).rglob("*.py"))):
        yield f"pybench/{file.relative_to(package).as_posix()}", file


def _digest(files: Iterable[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in sorted(files):
        regular = stat.S_ISREG(path.lstat().st_mode)
        content = path.read_bytes() if regular and path.lstat().st_size <= _MAX_FILE_BYTES else b"no source file"
        digest.update(name.encode(errors="surrogateescape") + b"\0" + hashlib.sha256(content).digest())
    return digest.hexdigest()
