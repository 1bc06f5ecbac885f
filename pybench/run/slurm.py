"""A Slurm step from its start to the verdict that its first task left, and ``sbatch`` for an allocation of its own.

Slurm's own exit code mixes those of all tasks, and is 0 where a node went down: each task leaves its code in a file.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

from pybench.machine.command import run_command
from pybench.model.errors import MachineError, UsageError
from pybench.run.hosts.rendezvous import SECRET_FILE_VARIABLE, SECRET_VARIABLE

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
        variables = {**secret, **environment, STEP_VARIABLE: str(Path(folder).resolve())}
        last: deque[str] = deque(maxlen=_KEPT_LINES)
        code = _ran(argv, variables, last, show)
        verdict = read_verdict(Path(folder), 0)
    if verdict is None:
        text = "\n".join(last).lower()
        if "munge" in text:
            remedy = "munge does not answer: start it on every node (systemctl start munge), with one key"
        elif not last:
            remedy = f"is {root} a folder that all nodes share? Give one with --runs"
        else:
            remedy = f"srun's own lines are above; is {root} a folder that all nodes share?"
        raise MachineError(f"srun ended with code {code}, and the first node left no verdict; {remedy}")
    return verdict


def _ran(argv: Sequence[str], environment: Mapping[str, str], last: deque[str], show: Callable[[str], None]) -> int:
    try:
        # In a new session: a terminal's Ctrl-C reaches this process alone, which ends the step in order.
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


def submit_batch(words: Sequence[str], root: Path, options: Sequence[str]) -> tuple[str, Path, str]:
    """Submit a script that runs ``words`` up to ``--``, without ``--sbatch``, with the user's ``options`` of sbatch.

    Gives the job's number, the script and the file of its output. Raises ``MachineError``.
    """
    command = [word for word in _absolute(takewhile("--".__ne__, words)) if word != "--sbatch"]
    root.mkdir(parents=True, exist_ok=True)
    script = root / f"sbatch-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.sh"
    script.write_text(batch_script(command, Path.cwd()), encoding="utf-8")
    output = str(root.resolve() / "slurm-%j.out")
    done = run_command(("sbatch", "--parsable", f"--output={output}", *options, str(script)))
    if not done.ok:
        munge = "; start munge on this host (systemctl start munge)" if "munge" in done.error.lower() else ""
        raise MachineError(f"sbatch: {done.error_line.removeprefix('sbatch: ')}{munge}")
    job = done.out.strip().partition(";")[0]
    return job, script, output.replace("%j", job)


def _absolute(words: Iterable[str]) -> tuple[str, ...]:
    """A command line whose program is found from any folder."""
    program, *arguments = words
    return (str(Path(program).absolute()), *arguments)


STEP_VARIABLE = "PYBENCH_SLURM_VERDICTS"
"""Set for the tasks that pybench itself starts: the folder to which each writes its verdict."""
# Below the ports that Linux gives to outgoing connections (32768 and more).
_FIRST_PORT, _NUM_PORTS = 20_000, 12_000
_STEPS_OF_A_JOB = 64
_MAX_NODES = 1024
# Batch scripts and interactive shells are steps, too, by numbers at the end of 32 bits (slurm.h).
_FIRST_OF_SLURMS_OWN_STEPS = 0xFFFFFFF0
_GROUP = re.compile(r"([A-Za-z0-9_.-]*)(?:\[([0-9,-]+)\])?([A-Za-z0-9_.-]*)(?:,|$)")


def srun_command(
    environment: Mapping[str, str], command: Sequence[str], num_nodes: int | None
) -> tuple[str, ...] | None:
    """Command line that runs ``command`` once on each of ``num_nodes`` hosts of the allocation, by default on all.

    ``None`` outside of an allocation of several nodes, and in a step of one. Raises ``UsageError`` for too many nodes.
    """
    job, nodes = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_NUM_NODES", "1")
    step = environment.get("SLURM_STEP_ID", "")
    if step.isdecimal() and int(step) < _FIRST_OF_SLURMS_OWN_STEPS:
        return None  # somebody's own srun
    if STEP_VARIABLE in environment or not job.isdecimal() or not nodes.isdecimal() or int(nodes) < 2:  # noqa: PLR2004
        return None
    count = num_nodes or int(nodes)
    if count > int(nodes):
        raise UsageError(f"--nodes {count}: the allocation of job {job} has {nodes} nodes; allocate {count}")
    # Since Slurm 22.05 a step takes one CPU for each task unless it names more; nodes may differ in their number.
    each = re.fullmatch(r"(\d+)(?:\(x\d+\))?", environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    cpus = (f"--cpus-per-task={each[1]}",) if each else ()
    one_each = (f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1")
    return ("srun", *one_each, *cpus, "--cpu-bind=none", "--kill-on-bad-exit=0", "--", *_absolute(command))


def task_of(environment: Mapping[str, str]) -> tuple[str, int, int] | None:
    """HOST:PORT where the hosts meet, their number, and this one's, of the task that this process is.

    ``None`` where pybench did not start it by ``srun``. Raises ``MachineError`` without a list of nodes.
    """
    if STEP_VARIABLE not in environment:
        return None
    names = expand_nodes(environment.get("SLURM_STEP_NODELIST", ""))
    numbers = [environment.get(f"SLURM_{name}", "") for name in ("JOB_ID", "STEP_ID", "NODEID")]
    if not names or not all(number.isdecimal() for number in numbers):
        raise MachineError("srun set no SLURM_STEP_NODELIST; give --rendezvous HOST:PORT of the first node")
    job, step, node_rank = map(int, numbers)
    return f"{names[0]}:{_FIRST_PORT + (job * _STEPS_OF_A_JOB + step) % _NUM_PORTS}", len(names), node_rank


def expand_nodes(text: str) -> tuple[str, ...]:
    """Names of a list such as ``gpu[01-03,07],login``; ``scontrol`` is in no image. Raises ``MachineError``."""
    names: list[str] = []
    place = 0
    while place < len(text):
        match = _GROUP.match(text, place)
        if match is None or match.end() == place:
            raise MachineError(f"Slurm's list of nodes can't be read: {text[:200]}; give --rendezvous HOST:PORT")
        before, numbers, after = match.groups()
        names += [f"{before}{number}{after}" for number in ([""] if numbers is None else _numbers(numbers))]
        place = match.end()
    return tuple(names)


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) - int(first) > _MAX_NODES:
            raise MachineError(f"Slurm's list of nodes can't be read: [{text[:200]}]; give --rendezvous HOST:PORT")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}d}"
