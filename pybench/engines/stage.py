"""The worker's source as its own folder: all that a worker sees of pybench, read-only to it.

A foreign image has its own Python and must not meet the host's packages, so the folder holds the wire types and the
worker, nothing else.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pybench

_STAGED = ("model", "worker")
WORKER_SCRIPT = Path("pybench", "worker", "__main__.py")
"""Where the script that starts a worker is, below the stage."""


def stage_worker(folder: Path) -> None:
    """Copy the worker below ``folder``. Raises ``OSError`` as copying does."""
    source = Path(pybench.__file__).parent
    package = folder / "pybench"
    for file in (source / "__init__.py", *(path for room in _STAGED for path in (source / room).rglob("*.py"))):
        copy = package / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    # Whatever this user's umask is: inside a container, user nobody reads it.
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def worker_digest(folder: Path) -> str:
    """SHA-256 over the names and bytes of a staged worker: what exactly ran."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()
