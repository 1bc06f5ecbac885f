"""What every engine offers: a launcher for a run, which starts a worker for each job."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

from pybench.machine.disk import reports_full_disk, room_text
from pybench.model.container import ContainerRequest, ContainerRun, ContainerSetup, EngineFacts, ImageLock
from pybench.model.errors import MachineError
from pybench.model.machine import DeviceKind, DoctorFinding, Place, Software
from pybench.model.wire import Failure
from pybench.run.engines import CONTAINER_ENGINES, PLACES
from pybench.run.engines.process import Worker, end_marked
from pybench.run.images.lock import default_lock, read_lock

Argv = tuple[str, ...]
Notify = Callable[[str], None]
"""Shows the user one line while something takes long."""


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """Where ranks of several hosts meet: ``node_rank`` is this host's place of ``num_nodes``, 0 where they meet.

    ``local_address`` is this host's own on the network that they share; ``local_port`` is a port there that is held for
    a server of the worker's own, 0 in what another host starts.
    """

    num_nodes: int
    node_rank: int
    address: str
    port: int
    local_address: str
    local_port: int = 0


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One worker process to start, on each of its places.

    ``stage`` is the folder with the worker's source, ``exchange`` one that the worker may write, ``compiled`` one for
    compiled code that the run's workers of its backend share, if there is any; ``num_processes`` how many ranks
    start on all places together, ``places`` what it has of each host, of which the one called ``host`` is
    here; ``token`` is a mark that every process of the worker carries in its environment, so that all of them can be
    found and ended. A part of a job has a ``meeting`` with the others.
    """

    stage: Path
    exchange: Path
    backend: str
    num_processes: int
    places: tuple[Place, ...]
    token: str
    host_environment: Mapping[str, str] = field(repr=False)
    host: str = ""
    meeting: Meeting | None = None
    compiled: Path | None = None

    @property
    def gpu_uuids(self) -> tuple[str, ...]:
        """GPUs that it may see on this host; none for a CPU point."""
        return next((place.gpu_uuids for place in self.places if place.host == self.host), ())

    @property
    def spans_hosts(self) -> bool:
        """Whether any of its ranks run on another host than this one."""
        return any(place.host != self.host for place in self.places)

    @property
    def ranks_each(self) -> int:
        """Ranks of each place."""
        return self.num_processes // len(self.places)

    @property
    def run_mark(self) -> str:
        """The part of the token that all workers of the run have."""
        return self.token.partition("/")[0]

    @property
    def rank_options(self) -> Argv:
        """Options of the worker that start several ranks."""
        ranks = ("--ranks", str(self.num_processes))
        if (at := self.meeting) is None:
            return ranks if self.num_processes > 1 else ()
        number = ("--nodes", str(at.num_nodes), "--node-rank", str(at.node_rank))
        return (*ranks, *number, "--meet", f"{at.address} {at.port}", "--local", f"{at.local_address} {at.local_port}")

    def part(self, host: str, meeting: Meeting, environment: Mapping[str, str]) -> Launch:
        """The part of one host."""
        place = next(place for place in self.places if place.host == host)
        return replace(
            self,
            places=(place,),
            host=host,
            num_processes=self.ranks_each,
            meeting=meeting,
            host_environment={**self.host_environment, **environment},
        )


class Launcher(ABC):
    """Starts the workers of one run.

    ``container`` is what its containers have in common, ``None`` when it starts none. ``secrets`` are host variables
    whose values reach the worker and are removed from everything it writes.
    """

    container: ContainerSetup | None
    secrets: tuple[str, ...]

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the engine, for the manifest."""

    @abstractmethod
    def argv(self, job: Launch) -> Argv:
        """Command line of the job, for its record."""

    @abstractmethod
    def start(self, job: Launch, log: Path) -> Worker:
        """Start the job's worker; its output goes to ``log``. Raises ``OSError`` when it can't be started."""

    @abstractmethod
    def tuning(self, host: Mapping[str, str]) -> dict[str, str]:
        """Those variables that tune its workers and reach them from the shell ``host`` or the suite; with secrets."""

    def verify(self, container: ContainerRun | None, job: Launch, log: Path) -> Failure | None:  # noqa: ARG002
        """Refuse a job that did not run in the container that was planned for it, where the engine can tell."""
        return None

    def software(self) -> Software | None:
        """Python and packages that its workers would have; ``None`` where an image brings them, or nothing answers."""
        return None

    def missing(self, packages: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG002
        """Return the Python ``packages`` that its workers could not import; an image brings its own."""
        return ()

    def close(self) -> None:  # noqa: B027
        """End what is kept between workers; the run is over."""

    def remove_leftovers(self, run_mark: str) -> None:
        """End and remove what killed runners left of the run ``run_mark``. Raises ``MachineError``."""
        end_marked(f"{run_mark}/")


class Engine(ABC):
    """A way to start workers, by its name on the command line and in the manifest; ``PLACES`` lists all of them.

    ``examine`` describes it where its command is installed.
    """

    name: str
    examine: Callable[[], EngineFacts]

    def find(self) -> EngineFacts:
        """Look whether this machine has it. An engine that can't be used has a ``reason``."""
        if shutil.which(self.name) is None:
            return EngineFacts(name=self.name, version=None, reason=f"{self.name} is not installed", installed=False)
        return self.examine()

    @abstractmethod
    def launcher(
        self, facts: EngineFacts, needs: LaunchRequirements, options: EngineOptions, notify: Notify, *, fetch: bool
    ) -> Launcher:
        """A launcher that works; missing images are fetched if ``fetch``, else ``AbsentImageError`` is raised."""

    def findings(self, facts: EngineFacts) -> Iterator[DoctorFinding]:  # noqa: ARG002 - for an engine that has any
        """What ``pybench doctor`` reports of an engine that can be used."""
        return iter(())


def get_engine(name: str) -> Engine:
    """The engine called ``name``."""
    module, _, constant = PLACES[name].partition(":")
    engine: Engine = getattr(import_module(f"pybench.run.engines.{module}"), constant)
    return engine


def find_container_engines() -> tuple[tuple[Engine, EngineFacts], ...]:
    """Every engine that starts containers, with what this machine has of it."""
    return tuple((engine, engine.find()) for engine in map(get_engine, CONTAINER_ENGINES))


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """The command line's part. ``image`` overrides the lock and the suite; ``python`` is for engine ``none``."""

    engine: str = "auto"
    image: str | None = None
    allow_unpinned: bool = False
    lock: Path | None = None
    python: str | None = None


@dataclass(frozen=True, kw_only=True)
class LaunchRequirements:
    """Needs of a run; a resumed one has its ``engine`` and the container that it ``began`` with."""

    backends: tuple[str, ...]
    device: DeviceKind
    request: ContainerRequest
    gpu_uuids: tuple[str, ...] = ()
    engine: str | None = None
    began: ContainerSetup | None = None

    def image_name(self, backend: str) -> str | None:
        """Image that is requested by name, ``None`` for the backend's own."""
        before = self.began.images if self.began else ()
        return next((image.name for image in before if image.backend == backend), self.request.image)

    def lock(self, options: EngineOptions) -> ImageLock:
        """The image lock that applies. Raises ``FileError``."""
        return read_lock(options.lock or (Path(self.began.lock) if self.began else default_lock()))


def engine_error(engine: str, storage: str | None, failed: str, words: str, remedy: str = "") -> MachineError:
    """The error of an ``engine`` with its ``words`` and a ``remedy``; a full disk names ``storage``."""
    if reports_full_disk(words):
        where = f" in {storage} ({room_text(Path(storage))})" if storage else ""
        remedy = f"free space{where}, then run the same command again"
    return MachineError(f"{engine} {failed}: {words}" + (f"; {remedy}" if remedy else ""))
