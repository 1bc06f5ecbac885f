"""Exit codes of the core. Products add exit codes for their states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybench.model.errors import MachineError, PybenchError

if TYPE_CHECKING:
    from pybench.model.verdict import Verdict

USAGE = 2
MACHINE = 3
INTERNAL = 70  # EX_SOFTWARE of sysexits.h: a defect of pybench, never a verdict
INTERRUPTED = 130
INCOMPARABLE = 6
"""Of runs that cannot be compared: somebody has to look, so no printed workflow accepts it."""

BY_VERDICT: dict[Verdict, int] = {
    "pass": 0,
    "fail": 1,
    "missing": 1,
    "error": MACHINE,
    "inconclusive": 4,
    "no_expectation": 4,
}


def exit_code_of(error: PybenchError) -> int:
    """Exit code of an error that reached the command line."""
    return MACHINE if isinstance(error, MachineError) else USAGE
