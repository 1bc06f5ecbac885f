"""Large files of a worker's own: inside the exchange folder, the one place that it may write to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pybench.model.wire import SCRATCH_FOLDER
from pybench.worker.ranks import rank_numbers

_places: list[Path] = []


def place(exchange: Path) -> None:
    """Have scratch folders made inside ``exchange`` from now on."""
    _places[:] = [exchange / SCRATCH_FOLDER]


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A folder of this name, the same for all ranks of a host; the first of them removes it with all that is in it.

    The host removes the files of a killed rank.
    """
    folder = _places[0] / name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if rank_numbers().local_rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
