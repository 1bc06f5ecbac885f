"""A Slurm step from its start to the verdict that its first task left, and ``sbatch`` for an allocation of its own.

Slurm's own exit code mixes those of all tasks, and is 0 where a node went down: each task leaves its code in a file.
"""

from __future__ import annotations

import json
import secrets
import shlex
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pybench.machine.command import run_command
from pybench.model.errors import MachineError
from pybench.run.hosts.rendezvous import SECRET_FILE_VARIABLE, SECRET_VARIABLE
from pybench.run.slurm.allocation import STEP_VARIABLE

END_LIMIT_S = 60.0
"""Hosts end their workers within this, once they are interrupted."""
_KEPT_LINES = 20
_ALONE = "to measure this host alone: env -u SLURM_JOB_ID pybench run SUITE"


def run_step(argv: Sequence[str], root: Path, environment: Mapping[str, str], show: Callable[[str], None]) -> int:
    """Run ``argv`` (srun) with verdicts below ``root``, which all hosts share; gives the first task's exit code.

    ``show`` gets the lines of its standard error. Raises ``MachineError`` where that task left no verdict, and
    ``KeyboardInterrupt`` once all tasks have ended after one.
    """
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".slurm-", dir=root) as folder:
        secret = {} if SECRET_FILE_VARIABLE in environment else {SECRET_VARIABLE: secrets.token_hex(32)}
        own = {**secret, **environment, STEP_VARIABLE: str(Path(folder).resolve())}
        last: deque[str] = deque(maxlen=_KEPT_LINES)
        code = _ran(argv, own, last, show)
        verdict = read_verdict(Path(folder), 0)
    if verdict is None:
        raise MachineError(_unknown(code, root, last))
    return verdict


def _ran(argv: Sequence[str], environment: Mapping[str, str], last: deque[str], show: Callable[[str], None]) -> int:
    try:
        # Of its own session: a terminal's Ctrl-C is this process's, which ends the step in order.
        process = subprocess.Popen(
            argv, env=environment, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
        )
    except OSError as error:
        raise MachineError(f"{argv[0]}: {error.strerror}; install Slurm's client here, or {_ALONE}") from error
    with process:
        try:
            for line in process.stderr or ():
                last.append(line.rstrip("\n"))
                show(last[-1])
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)  # srun passes it on to every task
            try:
                process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return process.returncode


def _unknown(code: int, root: Path, lines: Sequence[str]) -> str:
    """Why there may be no verdict, by what srun reported."""
    text = "\n".join(lines).lower()
    if "munge" in text:
        remedy = "munge does not answer: start it on every node (systemctl start munge), with one key"
    elif not lines:
        remedy = f"is {root} a folder that all nodes share? Give one with --runs"
    else:
        remedy = f"srun's own lines are above; is {root} a folder that all nodes share?"
    return f"srun ended with code {code}, and the first node left no verdict; {remedy}"


_MAX_BYTES = 4096
_MAX_CODE = 255


def write_verdict(folder: Path, node_rank: int, host: str, code: int) -> None:
    """Leave the exit code of task ``node_rank``. Raises ``OSError``."""
    part = folder / f".{node_rank}.part"
    part.write_text(json.dumps({"host": host, "exit_code": code}) + "\n", encoding="utf-8")
    part.rename(folder / f"{node_rank}.json")


def read_verdict(folder: Path, node_rank: int) -> int | None:
    """The exit code of task ``node_rank``; ``None`` where it left none that can be read."""
    try:
        with (folder / f"{node_rank}.json").open("rb") as stream:
            code = json.loads(stream.read(_MAX_BYTES))["exit_code"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) and 0 <= code <= _MAX_CODE else None


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
