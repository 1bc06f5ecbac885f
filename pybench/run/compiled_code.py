"""Where workers in containers keep what they compile, for the run's next ones: on this host's own disk while it lasts.

A run's folder may be on a network's, where libraries that compile in several ranks at once wait for locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pybench.machine.scratch import scratch_folder


@contextmanager
def compiled_code() -> Iterator[Path | None]:
    """The folder of one run, ``None`` where the disk for temporary files takes none or runs no code."""
    with ExitStack() as held:
        folder = None
        with suppress(OSError):
            made = held.enter_context(scratch_folder("pybench-compiled-"))
            folder = None if os.statvfs(made).f_flag & os.ST_NOEXEC else made
        yield folder


def folder_of(backend: str, folder: Path) -> Path | None:
    """A backend's below a run's, made where there is none; ``None`` where that can't be."""
    path = folder / backend
    with suppress(OSError):
        path.mkdir(exist_ok=True)
        return path
    return None
