"""A small run, again and again with another one of its system calls failing, and what is wrong with how each ended."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.builders import NO_DRIVER
from tests.programs import shell_program
from tests.run.drill import suite_text, table_text

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
READS, WRITES, OPENS = 1, 2, 4
ERRORS = {READS: (errno.EIO,), WRITES: (errno.EIO, errno.ENOSPC, errno.EROFS), OPENS: (errno.EIO, errno.EMFILE)}
NUM_ATTEMPTS = 4
# Of what a run only reads of Python, its packages and other processes, and of the source that it copies.
_ALIKE = re.compile(r"/proc/N/|/site-packages/|/\.pyenv/|/lib/pythonN|(?:/worker)?/pybench/|/node/|\.py[c ]")
# Verdicts of a run that would have passed, and codes of defects.
_FALSE = {
    1: "a false verdict",
    4: "a false verdict",
    70: "an internal error",
    98: "an internal error",
    99: "a traceback",
}


def write_quick_drill(here: Path) -> tuple[str, ...]:
    """Write a suite of four attempts, its table and a Python that is the quick worker; returns the run's arguments."""
    (here / "drill.toml").write_text(suite_text(max_attempts=2, time_limit_s=60))
    (here / "expected").mkdir()
    (here / "expected" / "drill.toml").write_text(table_text())
    # The launcher's arguments: -I -B worker/__main__.py EXCHANGE [--ranks N]; and -I -B -c, for version and packages.
    worker = f'"{sys.executable}" -I -S -B "{HERE / "quick_worker.py"}"'
    script = f'case "$3" in */__main__.py) shift 3; exec {worker} "$@";; esac\necho \'["3.11.7", {{}}]\''
    python = shell_program(here / "python", script)
    return ("run", "drill.toml", "--python", str(python))


@dataclass(frozen=True)
class Fault:
    """The ``place``-th of the calls described alike fails; with ``goes_on`` all of ``kinds`` behind it too."""

    call: str
    place: int
    error: int
    kinds: int = 0
    goes_on: bool = False

    def __str__(self) -> str:
        name, _, path = self.call.partition(" ")
        short = re.sub(r".*/runs/NTNZ-drill", "RUN", path)
        return f"{name} {short} #{self.place}{' and on' if self.goes_on else ''}: {errno.errorcode[self.error]}"


class FaultSweep:
    """Makes the runs below ``folder``, with the fault library ``library``."""

    def __init__(self, folder: Path, library: Path) -> None:
        self._folder = folder
        self._locks = folder / "locks"
        environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "PYBENCH_LOCKS": str(self._locks),
            "TMPDIR": str(folder),
        }
        environment |= dict([NO_DRIVER]) | {"PATH": "/nonexistent"}
        command = (sys.executable, "-m", "tests.cli.faulted_run")
        self._runs = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        self._number = 0

    def close(self) -> None:
        """End the process that makes the runs."""
        self._runs.communicate()

    def calls(self) -> dict[str, tuple[int, int]]:
        """The system calls of an undisturbed run, each with its count and kinds."""
        first, here = self._new(), self._new()
        assert self._run(first, self._first(first), None) == 0, (first / "err").read_text()
        # A second time, with every cache filled; beside the first its name would have a number in the same second.
        self._run(here, self._first(here), None)
        lines = (here / "calls").read_text(errors="surrogateescape").splitlines()
        split = [line.rpartition(" ") for line in lines]
        counted = Counter(call for call, _, _ in split)
        return {call: (counted[call], int(kinds)) for call, _, kinds in split}

    def problem(self, fault: Fault) -> str | None:
        """What is wrong with how a run with the fault ended, and went on; ``None``: nothing, "": it was not reached."""
        here = self._new()
        code = self._run(here, self._first(here), fault)
        if (here / "hit").read_text() == "0":
            return ""
        found = self._problem(here, code)
        if found is None:
            shutil.rmtree(here)
        return found and f"{found}\n{(here / 'err').read_text()}"

    def _problem(self, here: Path, code: int) -> str | None:
        error = (here / "err").read_text(errors="replace")
        if code in _FALSE or code < 0:
            return f"exit code {code}, {_FALSE.get(code, 'a signal')}"
        if "Traceback" in error or "Exception ignored" in error:
            return "a traceback"
        if code not in (0, 3):
            return f"exit code {code} for trouble with the machine"
        if code == 3 and "pybench: " not in error.splitlines()[-1]:
            return "exit code 3 without a line that says why"
        runs = [path for path in (here / "runs").glob("*") if (path / "manifest.json").exists()]
        if not runs:
            return None if code else "exit code 0 without a run"
        return self._lost(here, runs[0], finished=code == 0)

    def _lost(self, here: Path, run: Path, *, finished: bool) -> str | None:
        """The files that the resumed run lacks."""
        journal = run / "journal.jsonl"
        before = journal.read_bytes() if journal.exists() else b""
        kept = before[: before.rfind(b"\n") + 1]
        if finished and not self._is_whole(run):
            return "exit code 0 of an incomplete run"
        resumed = self._run(here, ("run", "--resume", str(run), *self._first(here)[2:]), None)
        if resumed != 0:
            return f"resumed, it ends with exit code {resumed}"
        if not journal.read_bytes().startswith(kept):
            return "resumed, its journal lost lines"
        return None if self._is_whole(run) else "resumed, its journal is not whole"

    def _is_whole(self, run: Path) -> bool:
        """Whether every attempt is in the journal once, none of them failed, and the results are there."""
        records = [json.loads(line)["record"] for line in (run / "journal.jsonl").read_text().splitlines()]
        attempts = {(record["point_id"], record["attempt"]) for record in records}
        passed = json.loads((run / "results.json").read_text())["verdict"] == "pass"
        return passed and len(attempts) == len(records) == NUM_ATTEMPTS and not any(r["failure"] for r in records)

    def _new(self) -> Path:
        self._number += 1
        here = self._folder / f"run{self._number}"
        here.mkdir()
        write_quick_drill(here)
        return here

    def _first(self, here: Path) -> tuple[str, ...]:
        return ("run", "drill.toml", "--python", str(here / "python"))

    def _run(self, here: Path, arguments: tuple[str, ...], fault: Fault | None) -> int:
        assert self._runs.stdin is not None
        assert self._runs.stdout is not None
        failing = vars(fault) if fault else {"call": None}
        self._runs.stdin.write(json.dumps({"folder": str(here), "arguments": arguments, **failing}) + "\n")
        self._runs.stdin.flush()
        return int(self._runs.stdout.readline())


def faults(calls: dict[str, tuple[int, int]]) -> Iterator[Fault]:
    """Each distinct call at its first, second and last place with each of its errors, then for good.

    Of many similar calls a few represent the others.
    """
    alike: Counter[str] = Counter()
    for call, (count, kinds) in calls.items():
        if shown := _ALIKE.search(call):
            group = f"{call.split()[0]} {shown[0]}"
            alike[group] += 1
            if alike[group] > 2:
                continue
        for place in sorted({0, min(1, count - 1), count - 1}):
            for kind, errors in ERRORS.items():
                if kind & kinds:
                    yield from (Fault(call, place, error) for error in errors)
        if kinds & WRITES:
            yield from (Fault(call, 0, error, WRITES, goes_on=True) for error in ERRORS[WRITES])
        elif kinds & OPENS:
            yield Fault(call, 0, errno.EMFILE, OPENS, goes_on=True)
