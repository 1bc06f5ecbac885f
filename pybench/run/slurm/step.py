"""A Slurm step from its start to the verdict that its first task left."""

from __future__ import annotations

import secrets
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pybench.model.errors import MachineError
from pybench.run.hosts.rendezvous import SECRET_FILE_VARIABLE, SECRET_VARIABLE
from pybench.run.slurm.allocation import STEP_VARIABLE
from pybench.run.slurm.verdict_file import read_verdict

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
