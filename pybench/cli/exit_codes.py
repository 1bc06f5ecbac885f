"""The one table of exit codes."""

from __future__ import annotations

from pybench.fleet.values import NodeState
from pybench.model.change import ChangeVerdict
from pybench.model.errors import FileError, MachineError, PybenchError, RunFolderError, UsageError
from pybench.model.verdict import Verdict
from pybench.nightly.values import GateState

USAGE = 2
MACHINE = 3
INTERNAL = 70  # EX_SOFTWARE of sysexits.h: a defect of pybench, never a verdict
INTERRUPTED = 130

BY_VERDICT: dict[Verdict, int] = {
    "pass": 0,
    "fail": 1,
    "missing": 1,
    "error": MACHINE,
    "inconclusive": 4,
    "no_expectation": 4,
}
BY_CHANGE: dict[ChangeVerdict, int] = {
    "unchanged": 0,
    "improved": 0,
    "regressed": 1,
    "not measured": 1,
    "undecided": 4,
    "incomparable": 4,
}
BY_GATE: dict[GateState, int] = {
    "pass": 0,
    "improved": 0,
    "regressed": 1,
    "not measured": 1,
    "host off": 4,
    "clock": 4,
    "incomparable": 4,
    "undecided": 4,
    "learning": 4,
}
BY_FLEET: dict[NodeState, int] = {
    "healthy": 0,
    "bad": 1,
    "not measured": 1,
    "suspect": 4,
    "not compared": 4,
}
BY_ERROR: tuple[tuple[type[PybenchError], int], ...] = (
    (FileError, USAGE),
    (UsageError, USAGE),
    (RunFolderError, USAGE),
    (MachineError, MACHINE),
)


def exit_code_of(error: PybenchError) -> int:
    """Exit code of an error that reached the command line."""
    return next(code for kind, code in BY_ERROR if isinstance(error, kind))
