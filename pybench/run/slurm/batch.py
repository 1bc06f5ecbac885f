"""``sbatch``: a batch script that runs the command in an allocation of its own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from pybench.machine.command import run_command
from pybench.model.errors import MachineError


def batch_script(command: Sequence[str], folder: Path) -> str:
    """The script: nothing in it is expanded by a shell, on whichever node it runs."""
    return f"#!/bin/sh\n#SBATCH --ntasks-per-node=1\ncd {shlex.quote(str(folder))} && exec {shlex.join(command)}\n"


def submit(script: Path, options: Sequence[str]) -> str:
    """Submit ``script`` with the user's ``options``; gives the job's number. Raises ``MachineError``."""
    done = run_command(("sbatch", "--parsable", *options, str(script)))
    if not done.ok:
        munge = "; start munge on this host (systemctl start munge)" if "munge" in done.error.lower() else ""
        raise MachineError(f"sbatch: {done.error_line.removeprefix('sbatch: ')}{munge}")
    return done.out.strip().partition(";")[0]
