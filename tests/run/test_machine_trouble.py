"""Failed attempts that are no result of their point: the machine's doing stops the run instead."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pybench.model.container import EngineFacts
from pybench.model.errors import MachineError
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.wire import Failure
from pybench.run.engines.base import Launcher
from pybench.run.engines.local import Local
from pybench.run.engines.oci.engine import OciEngine
from pybench.run.loop import Run

UP = EngineFacts(name="docker", version="28", data_root="/")
DOCKER = cast("Launcher", SimpleNamespace(name="docker", container=object()))  # nothing is started with it
DOWN = EngineFacts(name="docker", version=None, reason="the docker daemon doesn't answer: connection refused")


def record(failure: Failure | None) -> Record:
    fields: dict[str, Any] = dict.fromkeys(("startup_s", "energy", "energy_reason", "trace"))
    about = {"point_id": "p", "point_digest": "d", "attempt": 1, "started_utc": "", "duration_s": 1.0}
    return Record(**fields, **about, ranks=(), failure=failure, log="worker.log", argv=())  # type: ignore[arg-type]


def run(launcher: Launcher, path: Path) -> Run:
    folder: Any = SimpleNamespace(path=path)
    return Run(folder=folder, manifest=cast("Manifest", None), launcher=launcher)


def launch_failure(words: str) -> Record:
    return record(Failure(cause="launch", message=f"docker started no container: {words}"))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say how the engine is."""
    return lambda facts: monkeypatch.setattr(OciEngine, "find", lambda _engine: facts)


def test_an_engine_that_went_down(engine: Any, tmp_path: Path) -> None:
    """Named, with the way on; without this every attempt that is left would be a failed one."""
    engine(DOWN)
    with pytest.raises(MachineError, match=f"connection refused; start it, then: pybench run --resume {tmp_path}"):
        run(DOCKER, tmp_path).blame_machine(launch_failure("Cannot connect to the Docker daemon"))


def test_an_engine_whose_disk_is_full(engine: Any, tmp_path: Path) -> None:
    """Its storage is named, not the run's folder."""
    engine(UP)
    with pytest.raises(MachineError, match=r"can't start a container: .*no space left on device.; free space in / \("):
        run(DOCKER, tmp_path).blame_machine(launch_failure("mkdir /var/lib/docker/x: no space left on device."))


@pytest.mark.parametrize(
    ("launcher", "options"),
    [
        (Local(), ""),
        (DOCKER, ""),
        (Local("./python"), " --python ./python"),
        (Local("/my tools/python"), " --python '/my tools/python'"),
    ],
)
def test_a_run_goes_on_with_the_python_that_began_it(launcher: Launcher, options: str) -> None:
    """It is refused with another one; the Python of pybench itself needs no name."""
    assert run(launcher, Path("runs/a")).resume_command() == f"pybench run --resume runs/a{options}"


@pytest.mark.parametrize(
    "failure",
    [
        None,
        Failure(cause="launch", message="docker started no container: exec /usr/bin/python3: not found"),
        Failure(cause="exception", message="OSError: [Errno 28] No space left on device"),  # its own /tmp
    ],
)
def test_what_is_the_points_own(engine: Any, tmp_path: Path, failure: Failure | None) -> None:
    """Stays a record."""
    engine(UP)
    run(DOCKER, tmp_path).blame_machine(record(failure))
    run(Local(), tmp_path).blame_machine(record(failure))
