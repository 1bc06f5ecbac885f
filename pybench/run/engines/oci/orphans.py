"""Containers whose runner is dead: found by their labels, removed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pybench.machine.command import run_command
from pybench.machine.environment import host_clock
from pybench.model.errors import MachineError
from pybench.run.engines.base import Argv


def this_runner() -> str:
    """Mark of this process on its containers: boot, process namespace, process id and its start, slash-separated."""
    return _runner(os.getpid()) or ""


def remove_orphans(engine: Sequence[str], run_mark: str) -> int:
    """Remove containers whose runner is dead, and all that carry ``run_mark``; returns how many there were.

    Containers of a runner in another process namespace are kept: whether it lives can't be seen from here.
    Raises ``MachineError`` when the engine does not answer.
    """
    listed = run_command(listing_argv(tuple(engine)))
    if not listed.ok:
        raise MachineError(f"{engine[0]} can't list its containers: {listed.error_line}")
    count = 0
    for container in listed.out.split():
        labels = _labels(engine, container)
        if _is_orphan(labels.get(OWNER_LABEL, "")) or labels.get(ATTEMPT_LABEL, "").startswith(f"{run_mark}/"):
            run_command((*engine, "rm", "--force", "--volumes", container), outlives=True)
            count += 1
    return count


def listing_argv(engine: Argv) -> Argv:
    """Ids of every container that any pybench has started and not removed, running or not."""
    return (*engine, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={OWNER_LABEL}")


def _labels(engine: Sequence[str], container: str) -> dict[str, str]:
    result = run_command((*engine, "container", "inspect", container))
    return (json.loads(result.out)[0]["Config"]["Labels"] or {}) if result.ok else {}


def _is_orphan(owner: str) -> bool:
    boot, namespace, pid, _start = ([*owner.split("/"), "", "", "", ""])[:4]
    if boot != host_clock()[0]:
        return bool(boot)
    if namespace != _namespace() or not pid.isdigit():
        return False
    return _runner(int(pid)) != owner


def _runner(pid: int) -> str | None:
    try:
        # Fields after the name, which may hold spaces: proc(5), field 22 is the start in clock ticks.
        start = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return None
    return f"{host_clock()[0]}/{_namespace()}/{pid}/{start}"


def _namespace() -> str:
    return Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")


OWNER_LABEL = "pybench.run"
"""The process that started it."""
ATTEMPT_LABEL = "pybench.attempt"
"""The token of its job."""
