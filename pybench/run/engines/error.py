"""A failure of an engine as one line with what to do next."""

from __future__ import annotations

from pathlib import Path

from pybench.machine.disk import reports_full_disk, room_text
from pybench.model.errors import MachineError


def engine_error(engine: str, storage: str | None, failed: str, words: str, remedy: str = "") -> MachineError:
    """The error of an ``engine`` that ``failed``, with its own ``words``.

    A full disk names the folder, ``storage``, and how full it is; any other error ends with ``remedy``.
    """
    if reports_full_disk(words):
        where = f" in {storage} ({room_text(Path(storage))})" if storage else ""
        remedy = f"free space{where}, then run the same command again"
    return MachineError(f"{engine} {failed}: {words}" + (f"; {remedy}" if remedy else ""))
