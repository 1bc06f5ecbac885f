"""Apptainer's image files, kept by digest: made once, by one process, whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from pybench.engines.apptainer.launcher import build_argv
from pybench.engines.base import Argv
from pybench.engines.error import engine_error
from pybench.machine.command import CommandResult


def sif_folder() -> Path:
    """Where image files are kept: below the user's cache folder, which several hosts may share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pybench" / "sif"


def sif_path(folder: Path, reference: str) -> Path:
    """The file's place, made or not."""
    return folder / f"{reference.rpartition('@')[2].replace(':', '-')}.sif"


def sif_file(folder: Path, reference: str, run: Callable[[Argv], CommandResult]) -> Path:
    """The image file of ``repository@sha256:…``, built with ``run`` if it isn't there yet.

    Raises ``MachineError`` when it can't be built. Processes that need the same one wait for the first, on any host
    whose locks the folder's file system shares. One that is there is taken as it is: the folder need not be writable.
    """
    file = sif_path(folder, reference)
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        if not file.exists():
            _build(reference, file, run)
    return file


def _build(reference: str, file: Path, run: Callable[[Argv], CommandResult]) -> None:
    # A name of this host's own: where locks reach no further than the host, two of them make the file, each whole.
    scratch = file.with_name(f"{file.stem}.{os.uname().nodename}.new")
    answer = run(build_argv(reference, scratch))
    if not answer.ok:
        scratch.unlink(missing_ok=True)
        failed = f"can't make an image file of {reference}"
        raise engine_error("apptainer", str(file.parent), failed, answer.error_line)
    scratch.rename(file)


def file_digest(file: Path) -> str:
    """SHA-256 of an image file: two builds of one image differ, so the image's own digest doesn't name it."""
    with file.open("rb") as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
