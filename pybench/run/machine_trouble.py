"""Failures of the machine rather than the point: a full disk, an engine that went down.

An attempt that fails this way is not recorded, so that the run can be resumed at it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from pybench.machine.disk import reports_full_disk, require_room
from pybench.model.errors import MachineError
from pybench.model.record import Record
from pybench.run.engines.base import Launcher
from pybench.run.engines.error import engine_error
from pybench.run.engines.local import Local
from pybench.run.engines.registry import get_engine

# An attempt's log, events, trace and record take some MiB at most.
ATTEMPT_BYTES = 4 * 2**20


def resume_command(run: Path, launcher: Launcher, *further: str) -> str:
    """The command that finishes a run with the workers' Python that began it, to copy; ``further`` are options."""
    python = launcher.python if isinstance(launcher, Local) else sys.executable
    named = () if python == sys.executable else ("--python", python)
    return shlex.join(("pybench", "run", "--resume", str(run), *further, *named))


def resume_remedy(run: Path, launcher: Launcher) -> tuple[str, str]:
    """What is kept once a begun run met a faulty disk, and what to do after that is repaired."""
    return "nothing recorded is lost", f": {resume_command(run, launcher)}"


def blame_machine(record: Record, launcher: Launcher, run: Path) -> None:
    """Raise ``MachineError``, or a faulty disk's ``OSError``, when a failed attempt was caused by the machine."""
    if record.failure is None:
        return
    require_room(run, ATTEMPT_BYTES)
    if launcher.container is None or record.failure.cause != "launch":
        return
    facts = get_engine(launcher.name).find()
    if facts.reason:
        raise MachineError(f"{facts.reason}; start it, then: {resume_command(run, launcher)}")
    if reports_full_disk(record.failure.message):
        raise engine_error(launcher.name, facts.data_root, "can't start a container", record.failure.message)
