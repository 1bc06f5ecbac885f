"""Starts workers with a Python of this machine, in no container."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pybench.machine.command import is_program, run_command
from pybench.model.container import EngineFacts
from pybench.model.errors import UsageError
from pybench.model.machine import OLDEST_PYTHON, RECORDED_PACKAGES, Software
from pybench.model.tuning import tunes
from pybench.model.wire import SHARED_VARIABLE, STARTER_VARIABLE
from pybench.run.engines.base import Argv, Engine, EngineOptions, Launch, Launcher, LaunchRequirements, Notify
from pybench.run.engines.environment import fixed
from pybench.run.engines.process import ATTEMPT_VARIABLE, WorkerProcess
from pybench.run.engines.stage import WORKER_SCRIPT
from pybench.run.engines.starter import COLD_VARIABLE, OF_A_JOB, ForkedWorker, Starter

# Where programs, caches and libraries are. No other variable of the shell is passed on.
_KEPT_NAMES = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "USER", "SSL_CERT_FILE"})


@dataclass(frozen=True)
class Local(Launcher):
    """Launcher for this machine: ``python`` is the interpreter that has the backend.

    ``starters`` are the run's, by command line, backend and environment.
    """

    python: str = sys.executable
    secrets: tuple[str, ...] = ()
    name: str = "none"
    container: None = None
    starters: dict[tuple[object, ...], Starter] = field(default_factory=dict, compare=False, repr=False)

    @property
    def interpreter(self) -> str:
        """Its name on command lines."""
        # A worker starts in its attempt's folder, where a relative path means another file; a bare name is on PATH.
        return str(Path(self.python).absolute()) if os.sep in self.python else self.python

    def argv(self, job: Launch) -> Argv:
        """``-I`` keeps the user's site and PYTHONPATH out, ``-B`` keeps the stage free of byte code."""
        return (*self._program(job), str(job.exchange), *job.rank_options)

    def _program(self, job: Launch) -> Argv:
        return (self.interpreter, "-I", "-B", str(job.stage / WORKER_SCRIPT))

    def environment(self, job: Launch) -> dict[str, str]:
        """Allow-listed host variables, the job's GPUs by UUID, and one thread per CPU rank."""
        kept = {name: value for name, value in job.host_environment.items() if name in _KEPT_NAMES}
        shared = {SHARED_VARIABLE: str(job.compiled)} if job.compiled else {}
        return {**kept, **shared, **self.tuning(job.host_environment), **fixed(job.gpu_uuids)}

    def start(self, job: Launch, log: Path) -> WorkerProcess | ForkedWorker:
        """Start the worker as a process of this machine, a fork where it can be one. Raises ``OSError``."""
        argv, environment = self._program(job), self.environment(job)
        importing = {**environment, STARTER_VARIABLE: str(os.getpid())}  # a process that imports its libraries itself
        alone = partial(WorkerProcess, self.argv(job), importing, log, job.token, guarded=True)
        if os.environ.get(COLD_VARIABLE, "0") != "0":
            return alone()
        shared = {name: value for name, value in environment.items() if name not in {*OF_A_JOB, *self.secrets}}
        key = (argv, job.backend, tuple(sorted(shared.items())))
        starter = self.starters.get(key)
        if starter is None:
            starter = self.starters[key] = Starter(argv, shared, f"{job.run_mark}/starter")
        order = (str(job.exchange), *job.rank_options), log, {ATTEMPT_VARIABLE: job.token, **environment}
        return ForkedWorker(starter, job.token, alone) if starter.is_usable and starter.send(*order) else alone()

    def close(self) -> None:
        """End the starters."""
        while self.starters:
            self.starters.popitem()[1].close()

    def tuning(self, host: Mapping[str, str]) -> dict[str, str]:
        """The shell's, and the secrets that the suite names."""
        # Also paths, which mean the same here; no secrets but those that the suite names.
        kept = {name: value for name, value in host.items() if tunes(name, value)}
        return {**kept, **{name: host[name] for name in self.secrets if name in host}}

    def software(self) -> Software | None:
        """Of its Python."""
        return python_software(self.python, RECORDED_PACKAGES)

    def missing(self, packages: tuple[str, ...]) -> tuple[str, ...]:
        """Those ``packages`` that its Python does not have."""
        return missing_packages(self.python, packages)


@dataclass(frozen=True)
class LocalEngine(Engine):
    """No container engine: this machine's Python."""

    name: str = "none"

    def find(self) -> EngineFacts:
        """It is always there."""
        return EngineFacts(name=self.name, version=None)

    def launcher(
        self, facts: EngineFacts, needs: LaunchRequirements, options: EngineOptions, notify: Notify, *, fetch: bool
    ) -> Launcher:
        """Launcher with ``--python``, or with the Python that runs pybench. Raises ``UsageError``."""
        del facts, notify, fetch
        if options.python is None:
            return Local(secrets=needs.request.secrets)
        if not is_program(options.python):
            raise UsageError(f"--python {options.python}: no such program; name an interpreter that has the backends")
        software = python_software(options.python, ())
        if software is None:
            raise UsageError(f"--python {options.python}: it runs no Python; name an interpreter that has the backends")
        if tuple(int(part) for part in software.python.split(".")[:2]) < OLDEST_PYTHON:
            raise UsageError(f"--python {options.python}: Python {software.python}; workers need 3.10 or newer")
        return Local(options.python, needs.request.secrets)


_CODE = (
    "import json, sys; from importlib.util import find_spec; "
    "print(json.dumps([name for name in sys.argv[1:] if find_spec(name) is None]))"
)

# Packages that are there without a record of their version count as absent, as they do for a worker.
_VERSIONS = """
import json, platform, sys
from importlib import metadata

def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

found = {name: version(name) for name in sys.argv[1:]}
print(json.dumps([platform.python_version(), {name: text for name, text in found.items() if text is not None}]))
"""

_SOFTWARE = TypeAdapter(tuple[str, dict[str, str]])
_NAMES = TypeAdapter(list[str])


def python_software(python: str, names: Iterable[str]) -> Software | None:
    """Version of ``python`` and of those of ``names`` that it has; ``None`` where it prints anything else."""
    result = run_command((python, "-I", "-B", "-c", _VERSIONS, *names))
    try:
        version, packages = _SOFTWARE.validate_json(result.out, strict=True)
    except ValidationError:
        return None
    return Software(python=version, packages=packages)


def missing_packages(python: str, names: Sequence[str]) -> tuple[str, ...]:
    """``names`` that ``python`` can't find, without an import; none of them if it does not answer."""
    result = run_command((python, "-I", "-B", "-c", _CODE, *names))
    try:
        missing = _NAMES.validate_json(result.out, strict=True) if result.ok else []
    except ValidationError:
        return ()
    return tuple(name for name in names if name in missing)


ENGINE = LocalEngine()
