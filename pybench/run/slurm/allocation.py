"""A Slurm allocation, as the environment of its processes describes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pybench.model.errors import MachineError, UsageError

STEP_VARIABLE = "PYBENCH_SLURM_VERDICTS"
"""Set for the tasks that pybench itself starts: the folder to which each writes its verdict."""
# Below the ports that Linux gives to outgoing connections (32768 and more).
_FIRST_PORT, _NUM_PORTS = 20_000, 12_000
_STEPS_OF_A_JOB = 64
_MAX_NODES = 1024
# Batch scripts and interactive shells are steps, too, by numbers at the end of 32 bits (slurm.h).
_FIRST_OF_SLURMS_OWN_STEPS = 0xFFFFFFF0
_GROUP = re.compile(r"([A-Za-z0-9_.-]*)(?:\[([0-9,-]+)\])?([A-Za-z0-9_.-]*)(?:,|$)")


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Job ``job`` has ``num_nodes`` hosts, each with ``cpus_each`` CPUs, ``None`` where they differ."""

    job: int
    num_nodes: int
    cpus_each: int | None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Allocation | None:
        """The allocation of several nodes that this process is in and not yet a task of; ``None`` elsewhere."""
        job, nodes = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_NUM_NODES", "1")
        step = environment.get("SLURM_STEP_ID", "")
        if step.isdecimal() and int(step) < _FIRST_OF_SLURMS_OWN_STEPS:
            return None  # somebody's own srun
        if STEP_VARIABLE in environment or not job.isdecimal() or not nodes.isdecimal() or int(nodes) < 2:  # noqa: PLR2004
            return None
        cpus = re.fullmatch(r"(\d+)(?:\(x\d+\))?", environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
        return cls(job=int(job), num_nodes=int(nodes), cpus_each=int(cpus[1]) if cpus else None)

    def srun(self, command: Sequence[str], num_nodes: int | None) -> tuple[str, ...]:
        """Command line that starts ``command`` once on each of its hosts, or on the first ``num_nodes`` of them.

        Raises ``UsageError`` where it has fewer.
        """
        count = num_nodes or self.num_nodes
        if count > self.num_nodes:
            raise UsageError(
                f"--nodes {count}: the allocation of job {self.job} has {self.num_nodes} nodes; allocate {count}"
            )
        # Since Slurm 22.05 a step takes one CPU for each task unless it names more.
        cpus = () if self.cpus_each is None else (f"--cpus-per-task={self.cpus_each}",)
        one_each = (f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1")
        return ("srun", *one_each, *cpus, "--cpu-bind=none", "--kill-on-bad-exit=0", "--", *command)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One of the tasks that pybench started by ``srun``: where the hosts meet, and this one's number."""

    address: str
    port: int
    num_nodes: int
    node_rank: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Task | None:
        """The task that this process is; ``None`` where it is none. Raises ``MachineError`` without a list of nodes."""
        if STEP_VARIABLE not in environment:
            return None
        names = expand_nodes(environment.get("SLURM_STEP_NODELIST", ""))
        numbers = [environment.get(f"SLURM_{name}", "") for name in ("JOB_ID", "STEP_ID", "NODEID")]
        if not names or not all(number.isdecimal() for number in numbers):
            raise MachineError("srun set no SLURM_STEP_NODELIST; give --rendezvous HOST:PORT of the first node")
        job, step, node_rank = map(int, numbers)
        port = _FIRST_PORT + (job * _STEPS_OF_A_JOB + step) % _NUM_PORTS
        return cls(address=names[0], port=port, num_nodes=len(names), node_rank=node_rank)


def expand_nodes(text: str) -> tuple[str, ...]:
    """Names of a list such as ``gpu[01-03,07],login`` (``scontrol show hostnames`` is in no image).

    Raises ``MachineError`` for anything else.
    """
    names: list[str] = []
    place = 0
    while place < len(text):
        found = _GROUP.match(text, place)
        if found is None or found.end() == place:
            raise MachineError(f"Slurm's list of nodes can't be read: {text[:200]}; give --rendezvous HOST:PORT")
        before, numbers, after = found.groups()
        names += [f"{before}{number}{after}" for number in ([""] if numbers is None else _numbers(numbers))]
        place = found.end()
    return tuple(names)


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) - int(first) > _MAX_NODES:
            raise MachineError(f"Slurm's list of nodes can't be read: [{text[:200]}]; give --rendezvous HOST:PORT")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}d}"
