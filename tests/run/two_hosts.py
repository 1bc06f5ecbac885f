"""Two hosts on this machine: two commands with names, locks and folders of their own, and a suite over both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pybench.files.run.folder import RunFolder
from pybench.model.record import Record
from pybench.run.engines.process import processes_marked
from tests.builders import NO_DRIVER, training_over_hosts
from tests.ports import port_for
from tests.processes import wait_for
from tests.programs import fake_python

SECRET = "a secret of these tests alone"
LIMIT_S = 120
PYBENCH = Path(sys.executable).with_name("pybench")


@dataclass
class TwoHosts:
    """Folder ``a`` belongs to the host that leads, ``b`` to the other."""

    folder: Path
    attempts: int = 1
    ranks: int = 4
    environment: dict[str, str] = field(default_factory=dict)
    engine: tuple[str, ...] = ("--python", "./python")
    pybench: Path = PYBENCH

    def __post_init__(self) -> None:
        for name in "ab":
            (self.folder / name).mkdir()
            text = training_over_hosts(data_parallel=self.ranks, attempts=self.attempts)
            (self.folder / name / "hosts.toml").write_text(text)
            self.behave(name)
        self.port = port_for(self)

    def behave(self, name: str, behaviour: str = "ok", **environment: str) -> None:
        """Write the host's Python, which is the fake worker."""
        fake_python(self.folder / name / "python", behaviour, **environment)

    @contextmanager
    def host(
        self, name: str, *arguments: str, before: tuple[str, ...] = (), **environment: str
    ) -> Iterator[subprocess.Popen[str]]:
        """The command on one host, with another one ``before`` it; it is killed where the test does not wait for it.

        A command before it affects no forked process, so it starts a cold one.
        """
        given = arguments or ("hosts.toml",)
        meeting = ("--rendezvous", f"127.0.0.1:{self.port}", "--nodes", "2", "--node-rank", str("ab".index(name)))
        own = {
            "PYBENCH_HOST_NAME": name,
            "PYBENCH_LOCKS": str(self.folder / name / "locks"),
            "PYBENCH_RENDEZVOUS_SECRET": SECRET,
            NO_DRIVER[0]: NO_DRIVER[1],
        }
        process = subprocess.Popen(
            (*before, PYBENCH if before else self.pybench, "run", *given, *meeting, *self.engine),
            cwd=self.folder / name,
            env={**os.environ, **own, **self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    @property
    def run(self) -> RunFolder:
        """The only run."""
        (path,) = (self.folder / "a" / "runs").iterdir()
        return RunFolder.open(path)

    def records(self) -> tuple[Record, ...]:
        """Of the only run."""
        return self.run.journal.records()

    def left(self) -> list[int]:
        """Processes of the run's workers on either host, by the lead's mark."""
        return list(processes_marked(self.run.mark))

    def wait_for_worker(self, name: str = "hangs") -> None:
        """Return once the worker here has made a file."""
        wait_for(lambda: any(self.folder.glob(f"a/runs/*/attempts/*/exchange/{name}")), LIMIT_S)


def ended(process: subprocess.Popen[str], limit_s: float = LIMIT_S) -> tuple[int, str]:
    """Exit code and output."""
    out, _ = process.communicate(timeout=limit_s)
    return process.returncode, out
