"""What a launcher is asked to start, and the protocol every launcher answers."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from pybench.model.container import ContainerSetup

Argv = tuple[str, ...]


def events_file(rank: int) -> str:
    """Name, inside the exchange folder, of the file a rank appends its events to."""
    return f"events.{rank}.jsonl"


def clear_attempt(folder: Path) -> None:
    """Remove what an interrupted attempt left, so that its events are not read as new ones."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@dataclass(frozen=True, kw_only=True)
class Job:
    """One worker process to start.

    ``script`` is the staged worker, ``exchange`` the one folder the worker may write, ``num_processes`` how many ranks
    torchrun starts, ``gpu_uuids`` the GPUs it may see (none: a CPU point), ``token`` a mark that every process of
    the worker carries in its environment, so that none can be missed when it is ended.
    """

    script: Path
    exchange: Path
    backend: str
    num_processes: int
    gpu_uuids: tuple[str, ...]
    token: str
    host_environment: Mapping[str, str] = field(repr=False)


class Launcher(Protocol):
    """Turns a job into commands. Pure: starting them is the runner's business."""

    @property
    def name(self) -> str:
        """Name of the engine, for the manifest."""
        ...

    @property
    def container(self) -> ContainerSetup | None:
        """The containers it starts; ``None`` when it starts none."""
        ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """Host variables whose values reach the worker, and must stay nowhere."""
        ...

    def argv(self, job: Job) -> Argv:
        """Command line of the job."""
        ...

    def environment(self, job: Job) -> dict[str, str]:
        """Whole environment of the job's first process on this host."""
        ...


@runtime_checkable
class ContainerLauncher(Launcher, Protocol):
    """A launcher whose jobs outlive the command that started them, and must be ended through their engine."""

    def owner(self, job: Job) -> tuple[int, int] | None:
        """User and group that the exchange folder must belong to; ``None`` when this user's own will do."""
        ...

    def environment_text(self, job: Job) -> str:
        """Content of the job's environment file, which may hold secrets."""
        ...

    def inspect_argv(self, job: Job) -> Argv:
        """Command that describes the job's container as JSON."""
        ...

    def stop_argv(self, job: Job, grace_s: float) -> Argv:
        """Command that ends the job's container, by force after ``grace_s``."""
        ...

    def remove_argv(self, job: Job) -> Argv:
        """Command that removes the job's container, dead or alive."""
        ...


def environment_file(job: Job) -> Path:
    """Where the environment of a job's container is while it starts: outside of what the container sees."""
    return job.exchange.parent / "environment"
