"""Failures of the machine rather than the point: a full disk, an engine that went down.

An attempt that fails this way is not recorded, so that the run can be resumed at it.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from pybench.engines.base import Launcher
from pybench.engines.error import engine_error
from pybench.engines.registry import get_engine
from pybench.machine.disk import reports_full_disk, require_room
from pybench.model.errors import MachineError
from pybench.model.record import Record

# An attempt's log, events, trace and record take some MiB at most.
ATTEMPT_BYTES = 4 * 2**20


def resume_command(run: Path, *further: str) -> str:
    """The command that finishes a run, to copy; ``further`` are its arguments beyond the run's folder."""
    return shlex.join(("pybench", "run", "--resume", str(run), *further))


def resume_remedy(run: Path) -> tuple[str, str]:
    """What is kept once a begun run met a faulty disk, and what to do after that is repaired."""
    return "nothing recorded is lost", f": {resume_command(run)}"


def blame_machine(record: Record, launcher: Launcher, run: Path) -> None:
    """Raise ``MachineError``, or a faulty disk's ``OSError``, when a failed attempt was caused by the machine."""
    if record.failure is None:
        return
    require_room(run, ATTEMPT_BYTES)
    if launcher.container is None or record.failure.cause != "launch":
        return
    facts = get_engine(launcher.name).find()
    if facts.reason:
        raise MachineError(f"{facts.reason}; start it, then: {resume_command(run)}")
    if reports_full_disk(record.failure.message):
        raise engine_error(launcher.name, facts.data_root, "can't start a container", record.failure.message)
