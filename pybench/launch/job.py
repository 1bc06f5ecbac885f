"""What a launcher is asked to start, and the protocol every launcher answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

ORDER_FILE = "point.json"


def events_file(rank: int) -> str:
    """Name, inside the exchange folder, of the file a rank appends its events to."""
    return f"events.{rank}.jsonl"


def clear_exchange(folder: Path) -> None:
    """Remove what an interrupted attempt left in ``folder``, so that its events are not read as new ones."""
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()


@dataclass(frozen=True, kw_only=True)
class Job:
    """One attempt to start.

    ``script`` is the staged worker, ``exchange`` the one folder the worker may write, ``num_processes`` how many ranks
    torchrun starts, ``gpu_uuids`` the GPUs it may see (none: a CPU point), ``token`` a mark that every process of this
    attempt carries in its environment, so that none can be missed when it is ended.
    """

    script: Path
    exchange: Path
    num_processes: int
    gpu_uuids: tuple[str, ...]
    token: str
    host_environment: Mapping[str, str] = field(repr=False)


class Launcher(Protocol):
    """Turns a job into a command. Pure: starting it is the runner's business."""

    @property
    def name(self) -> str:
        """Name of the engine, for the manifest."""
        ...

    def argv(self, job: Job) -> tuple[str, ...]:
        """Command line of the job."""
        ...

    def environment(self, job: Job) -> dict[str, str]:
        """Whole environment of the job's first process."""
        ...
