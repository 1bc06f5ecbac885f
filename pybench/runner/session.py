"""What one worker process does: attempts at different points, one after another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from pybench.compute.schedule import Attempt
from pybench.engines.base import Job, Launcher
from pybench.model.wire import WorkOrder


@dataclass(frozen=True, kw_only=True)
class Session:
    """The attempts with their work orders and folders; the first one's folder holds the process's log and exchange.

    ``job`` has as many GPUs as each of the points occupies, none on a CPU. ``clock`` is this host's (boot id,
    CLOCK_MONOTONIC offset): a worker that reports another can't be joined with the power trace. ``power_reason`` is
    why power is not sampled; ``None`` when it is. At ``end_s`` of ``time.monotonic`` the run's own time is over.
    """

    run_path: Path
    attempts: tuple[Attempt, ...]
    orders: tuple[WorkOrder, ...]
    folders: tuple[Path, ...]
    job: Job
    launcher: Launcher
    clock: tuple[str, int]
    power_reason: str | None
    end_s: float = math.inf

    @property
    def log(self) -> Path:
        """What the process writes to its standard output and error."""
        return self.folders[0] / "worker.log"

    def is_last(self, place: int) -> bool:
        """Whether the process ends after attempt ``place``."""
        return place == len(self.attempts) - 1

    def before(self, place: int) -> tuple[str, ...]:
        """Ids of the points that the process measures before attempt ``place``."""
        return tuple(point.id for point, _ in self.attempts[:place])
