"""The processes that work on one point together."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from pybench.model.wire import SCRATCH_FOLDER
from pybench.worker.exchange import EventStream


@dataclass(frozen=True)
class RankNumbers:
    """The rank's numbers from torchrun's environment; a lone process is 0 of 1."""

    rank: int
    world_size: int
    local_rank: int


def rank_numbers() -> RankNumbers:
    """Read this process's place."""
    return RankNumbers(
        rank=int(os.environ.get("RANK", "0")),
        world_size=int(os.environ.get("WORLD_SIZE", "1")),
        local_rank=int(os.environ.get("LOCAL_RANK", "0")),
    )


OWN_PLACE = "PYBENCH_OWN_PLACE"
"""Variable of ranks that meet those of other hosts, with the launcher's ``--local``: see :func:`read_own_place`."""


def read_own_place() -> tuple[str, int]:
    """This host's own address towards the other hosts, and a port there for a server of this process's own.

    The host holds that port: no other program is given it; a server with SO_REUSEADDR, as torch's, may listen there.
    """
    address, port = os.environ[OWN_PLACE].split(" ")
    return address, int(port)


_scratch: list[Path] = []


def place_scratch(exchange: Path) -> None:
    """Have scratch folders made inside ``exchange`` from now on."""
    _scratch[:] = [exchange / SCRATCH_FOLDER]


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A folder of this name, the same for all ranks of a host; the first of them removes it with all that is in it.

    The host removes the files of a killed rank.
    """
    folder = _scratch[0] / name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if rank_numbers().local_rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


class Ranks:
    """The interface between the timing loop and the ranks; by itself the only rank, which waits for nobody."""

    rank = 0
    world_size = 1

    def barrier(self) -> None:
        """Wait for this rank's device, then for all ranks; a lone rank's step returns after its device is done."""

    def agree(self, decision: bool) -> bool:
        """Rank 0's decision."""
        return decision

    def watched(self, gpu: str, events: EventStream) -> AbstractContextManager[None]:  # noqa: ARG002 - nobody to wait for
        """Return a context in which ranks report a wait beyond the limit and end; ``gpu`` is this rank's."""
        return nullcontext()
