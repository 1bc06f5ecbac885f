"""Starts workers over the hosts of a run: those of one host as its own launcher does, all others by order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pybench.model.container import ContainerRun, ContainerSetup
from pybench.model.host import HostClock, Software
from pybench.model.wire import Failure
from pybench.run.engines.base import Argv, Launch, Launcher, Meeting, Worker
from pybench.run.hosts.gathering import Gathering
from pybench.run.hosts.worker import HostsWorker


@dataclass(frozen=True)
class HostsLauncher:
    """``here`` starts the parts of this host, which leads the ``gathering``."""

    here: Launcher
    gathering: Gathering

    @property
    def name(self) -> str:
        """The engine of every host."""
        return self.here.name

    @property
    def container(self) -> ContainerSetup | None:
        """The containers it starts; ``None`` when it starts none."""
        return self.here.container

    @property
    def secrets(self) -> tuple[str, ...]:
        """Those of each host's own environment."""
        return self.here.secrets

    def argv(self, job: Launch) -> Argv:
        """Command line of the first host's part, with a port that is found when it starts."""
        if len(job.places) == 1:
            return self.here.argv(job)
        host = job.places[0].host
        meeting = Meeting(num_nodes=len(job.places), node_rank=0, address=host, port=0, local_address=host)
        return self.here.argv(job.part(host, meeting, {}))

    def start(self, job: Launch, log: Path) -> Worker:
        """Start a worker of this host alone."""
        return self.here.start(job, log)

    def start_over(self, job: Launch, log: Path, clocks: tuple[HostClock, ...], limit_s: float) -> HostsWorker:
        """Start a worker on all places of a job. Raises ``OSError`` or ``HostLostError``."""
        links = [self.gathering.link(place.host) for place in job.places]
        return HostsWorker(job, log, links, clocks, self.here.start, limit_s)

    def verify(self, container: ContainerRun | None, job: Launch, log: Path) -> Failure | None:
        """Refuse a job whose part here did not run in the container that was planned for it."""
        return self.here.verify(container, job, log)

    def tuning(self, host: Mapping[str, str]) -> dict[str, str]:
        """Those variables that tune the workers of this host; every host has its own."""
        return self.here.tuning(host)

    def software(self) -> Software | None:
        """Python and packages of this host's workers; all hosts have the same."""
        return self.here.software()

    def missing(self, packages: tuple[str, ...]) -> tuple[str, ...]:
        """Those Python ``packages`` that its workers could not import."""
        return self.here.missing(packages)

    def close(self) -> None:
        """End what this host keeps between workers."""
        self.here.close()

    def remove_leftovers(self, run_mark: str) -> None:
        """End what a killed runner left on this host; other hosts end their own when they join."""
        self.here.remove_leftovers(run_mark)
