"""What is the machine's trouble and not the point's: a full disk, an engine that went down.

An attempt that ends by it is no result. It is not recorded, so that the run can go on where it was.
"""

from __future__ import annotations

from pathlib import Path

from pybench.launch.job import Launcher
from pybench.machine.disk import require_room, speaks_of_full_disk
from pybench.machine.engine_error import engine_error
from pybench.machine.engines import find_engine
from pybench.model.container import EngineName
from pybench.model.errors import MachineError
from pybench.model.record import Record

# An attempt's log, events, trace and record take some MiB at most.
ATTEMPT_BYTES = 4 * 2**20
_ENGINES: tuple[EngineName, ...] = ("docker", "podman", "apptainer")


def resume_remedy(run: Path) -> str:
    """What to do once a begun run met a full disk."""
    return f"nothing recorded is lost: free space there, then: pybench run --resume {run}"


def blame_machine(record: Record, launcher: Launcher, run: Path) -> None:
    """Raise ``MachineError``, or a full disk's ``OSError``, when a failed attempt is the machine's doing."""
    if record.failure is None:
        return
    require_room(run, ATTEMPT_BYTES)
    name = next((name for name in _ENGINES if name == launcher.name), None)
    if name is None or record.failure.cause != "launch":
        return
    facts = find_engine(name)
    if facts.reason:
        raise MachineError(f"{facts.reason}; start it, then: pybench run --resume {run}")
    if speaks_of_full_disk(record.failure.message):
        raise engine_error(name, facts.data_root, "can't start a container", record.failure.message)
