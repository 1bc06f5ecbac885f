"""Allocations by Slurm's environment, and the step started in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybench.model.errors import MachineError, UsageError
from pybench.run.slurm import (
    STEP_VARIABLE,
    batch_script,
    expand_nodes,
    read_verdict,
    srun_command,
    task_of,
    write_verdict,
)

JOB = {"SLURM_JOB_ID": "12", "SLURM_JOB_NUM_NODES": "4", "SLURM_JOB_CPUS_PER_NODE": "96(x4)"}
STEP = {
    **JOB,
    STEP_VARIABLE: "/runs/.slurm-x",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "gpu[007,009-010]",
    "SLURM_NODEID": "2",
}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("login", ("login",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("gpu[08-11,20]-ib,a.b", ("gpu08-ib", "gpu09-ib", "gpu10-ib", "gpu11-ib", "gpu20-ib", "a.b")),
        ("n[1,3],m[0099-0100]", ("n1", "n3", "m0099", "m0100")),
    ],
)
def test_lists_of_nodes(text: str, names: tuple[str, ...]) -> None:
    assert expand_nodes(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n[a]", "n[1-99999999]", "n[1-2][3-4]", "$(reboot)", "n 1"])
def test_what_is_no_list_of_nodes(text: str) -> None:
    """Two dimensions of numbers, too: the address can be given instead."""
    with pytest.raises(MachineError, match=r"can't be read.*give --rendezvous"):
        expand_nodes(text)


def test_one_node_runner_on_each_node() -> None:
    fixed = ("--cpus-per-task=96", "--cpu-bind=none", "--kill-on-bad-exit=0", "--", "/bin/pybench", "run", "s.toml")
    assert srun_command(JOB, ("/bin/pybench", "run", "s.toml"), None) == (
        *("srun", "--nodes=4", "--ntasks=4", "--ntasks-per-node=1"),
        *fixed,
    )
    command = srun_command(JOB, ("pybench",), 2)
    assert command is not None
    assert command[1:4] == ("--nodes=2", "--ntasks=2", "--ntasks-per-node=1")
    with pytest.raises(UsageError, match=r"--nodes 5: the allocation of job 12 has 4 nodes; allocate 5"):
        srun_command(JOB, ("pybench",), 5)


def test_unlike_nodes_have_no_number_of_cpus() -> None:
    command = srun_command({**JOB, "SLURM_JOB_CPUS_PER_NODE": "96(x3),64"}, ("x",), None)
    assert command is not None
    assert not [word for word in command if word.startswith("--cpus-per-task")]


@pytest.mark.parametrize(
    ("variables", "is_one"),
    [
        (JOB, True),
        ({**JOB, "SLURM_STEP_ID": "4294967291"}, True),  # a batch script
        ({**JOB, "SLURM_STEP_ID": "0"}, False),  # somebody's own srun
        ({**JOB, "SLURM_JOB_NUM_NODES": "1"}, False),
        ({**JOB, STEP_VARIABLE: "/runs/.slurm-x"}, False),  # a task of ours
        ({}, False),
    ],
)
def test_what_is_an_allocation_to_spread_over(variables: dict[str, str], is_one: bool) -> None:
    assert (srun_command(variables, ("x",), None) is not None) == is_one


def test_a_task_knows_where_to_meet() -> None:
    """The first node of its step, at a port of the job and step's own: 20000 + 12 * 64 + 3."""
    assert task_of(STEP) == ("gpu007:20771", 3, 2)
    assert task_of(JOB) is None
    with pytest.raises(MachineError, match="SLURM_STEP_NODELIST"):
        task_of({**STEP, "SLURM_STEP_NODELIST": ""})


def test_a_batch_script_expands_nothing() -> None:
    script = batch_script(("/opt/pybench", "run", "my suite.toml", "--set", "a=$HOME"), Path("/home/me/it's"))
    assert script == (
        "#!/bin/sh\n#SBATCH --ntasks-per-node=1\n"
        "cd '/home/me/it'\"'\"'s' && exec /opt/pybench run 'my suite.toml' --set 'a=$HOME'\n"
    )


def test_a_verdict_file(tmp_path: Path) -> None:
    """An unreadable file is no verdict."""
    write_verdict(tmp_path, 0, "n1", 4)
    assert read_verdict(tmp_path, 0) == 4
    assert read_verdict(tmp_path, 1) is None
    for text in ("", "{}", '{"exit_code": "0"}', '{"exit_code": -1}', "[]", "\xff"):
        (tmp_path / "1.json").write_text(text, encoding="latin-1")
        assert read_verdict(tmp_path, 1) is None
