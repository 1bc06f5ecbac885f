"""Runs in allocations of two nodes of a real Slurm: started by srun, cancelled, killed, resumed, submitted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pybench.core.numbers import node_ranges
from pybench.files.run.folder import RunFolder
from pybench.run.engines.process import processes_marked
from pybench.run.slurm import expand_nodes
from tests.builders import NO_DRIVER, training_over_hosts
from tests.ports import port_for
from tests.processes import wait_for
from tests.programs import fake_python
from tests.slurm.cluster import Cluster

LIMIT_S, TEST_LIMIT_S = 240, 600


@dataclass
class Place:
    """A folder that both nodes share, with a suite and a worker's Python."""

    folder: Path
    slurm: Cluster
    pybench: str
    port: int = field(init=False)

    def __post_init__(self) -> None:
        self.port = port_for(self)

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command in the folder; it is ended where the test does not wait for it."""
        own = {**self.slurm.variables, NO_DRIVER[0]: NO_DRIVER[1], "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            words, cwd=self.folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and output of ``pybench run`` in an allocation of both nodes."""
        with self.started(*self.in_allocation(*words)) as process:
            out, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, out

    def in_allocation(self, *words: str) -> tuple[str, ...]:
        """No name server knows these nodes: the address is given."""
        meet = ("--rendezvous", f"127.0.0.1:{self.port}")
        return ("salloc", "--nodes=2", "--exclusive", "--quiet", self.pybench, "run", *words, *meet)

    @property
    def measured(self) -> RunFolder:
        """The only run."""
        (path,) = (path for path in (self.folder / "runs").iterdir() if path.is_dir() and path.name[0] != ".")
        return RunFolder.open(path)

    def left(self) -> list[int]:
        """Processes of the run's workers."""
        return list(processes_marked(self.measured.mark))

    def jobs(self) -> str:
        """Numbers of the jobs that are not over."""
        return self.slurm.command("squeue", "-h", "-o", "%i").strip()


@pytest.fixture
def place(slurm: Cluster, tmp_path: Path, warm_pybench: Path) -> Iterator[Place]:
    made = Place(tmp_path, slurm, str(warm_pybench))
    (tmp_path / "hosts.toml").write_text(training_over_hosts(data_parallel=4))
    fake_python(tmp_path / "python", "ok")
    yield made
    for job in made.jobs().split():
        # Refused where the job ended meanwhile.
        subprocess.run(("scancel", "--signal=KILL", job), env=slurm.variables, capture_output=True, check=False)
    wait_for(lambda: not made.jobs(), LIMIT_S)


@pytest.mark.timeout(TEST_LIMIT_S)
def test_training_over_two_nodes_has_the_loss_of_one_host(place: Place, warm_python: Path) -> None:
    """A rank on each node by gloo, with torch; the loss at each step is that of one rank on one node."""
    axes = "[benchmark.axes]\ndata_parallel = [1, 2]\nnodes = [1, 2]"
    (place.folder / "train.toml").write_text(training_over_hosts(behind=axes, max_warmup_steps=2, time_limit_s=200))
    chosen = "(data_parallel=1 and nodes=1) or (data_parallel=2 and nodes=2)"
    code, out = place.run("train.toml", "-k", chosen, "--python", str(warm_python))
    assert code == 4, out  # nothing is expected but the loss
    assert "on each of the hosts n1 and n2 (clocks joined to" in " ".join(out.split())
    records = {record.point_id: record for record in place.measured.journal.records()}
    one, two = records["train[data_parallel=1,nodes=1]"], records["train[data_parallel=2,nodes=2]"]
    assert [(part.name, part.ranks) for part in two.hosts] == [("n1", (0, 1)), ("n2", (1, 1))]
    assert len(one.ranks[0].losses) == len(two.ranks[0].losses) >= 3
    assert two.ranks[0].losses == pytest.approx(one.ranks[0].losses, rel=1e-5)
    assert list((place.folder / "runs").glob(".slurm-*")) == []


@pytest.mark.timeout(TEST_LIMIT_S)
def test_a_cancelled_job_leaves_nothing_and_goes_on_in_another(place: Place) -> None:
    """By scancel, in the middle of a step."""
    fake_python(place.folder / "python", "hang")
    with place.started(*place.in_allocation("hosts.toml", "--python", "./python")) as process:
        wait_for(lambda: any(place.folder.glob("runs/*/attempts/*/exchange/hangs")), LIMIT_S)
        place.slurm.command("scancel", place.jobs())
        process.communicate(timeout=LIMIT_S)
    wait_for(lambda: not place.jobs() and not place.left(), LIMIT_S)
    assert place.measured.journal.records() == ()
    fake_python(place.folder / "python", "ok")
    code, out = place.run("--resume", str(place.measured.path), "--python", "./python")
    assert code == 4, out
    assert [record.failure for record in place.measured.journal.records()] == [None]


@pytest.mark.timeout(TEST_LIMIT_S)
def test_a_node_that_dies_is_named(place: Place) -> None:
    """Its task is killed in the middle of a step; Slurm goes on, the run does not, and nothing is left."""
    fake_python(place.folder / "python", "hang")
    with place.started(*place.in_allocation("hosts.toml", "--python", "./python")) as process:
        wait_for(lambda: any(place.folder.glob("runs/*/attempts/*/exchange/hangs")), LIMIT_S)
        (task,) = _tasks_of("n2", place.folder)
        os.kill(task, signal.SIGKILL)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 3, out
    assert "pybench: host n2: the connection was closed; it was lost in train attempt 1" in out
    wait_for(lambda: not place.jobs() and not place.left(), LIMIT_S)


@pytest.mark.timeout(TEST_LIMIT_S)
def test_a_submitted_run(place: Place) -> None:
    """The script needs no shell to expand anything; the verdict is in the job's output."""
    meet = ("--rendezvous", f"127.0.0.1:{place.port}")
    command = (
        place.pybench,
        "run",
        "hosts.toml",
        "--python",
        "./python",
        *meet,
        "--sbatch",
        "--",
        "--nodes=2",
        "--exclusive",
    )
    with place.started(*command) as process:
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, out
    found = re.search(r"job (\d+) is submitted", out)
    assert found is not None
    wait_for(lambda: not place.jobs(), LIMIT_S)
    log = (place.folder / "runs" / f"slurm-{found[1]}.out").read_text()
    assert "verdict: no expectation" in log, log
    assert [record.failure for record in place.measured.journal.records()] == [None]


def test_what_an_allocation_cannot_do_is_one_line(place: Place, tmp_path: Path) -> None:
    """More nodes than it has; a munge that does not answer."""
    code, out = place.run("hosts.toml", "--nodes", "3")
    assert code == 2, out
    assert "--nodes 3: the allocation of job" in out
    conf = Path(place.slurm.variables["SLURM_CONF"])
    (tmp_path / "slurm.conf").write_text(conf.read_text().replace("munge.socket", "no.socket"))
    place.slurm = Cluster(place.slurm.folder, environment={"SLURM_CONF": str(tmp_path / "slurm.conf")})
    with place.started(place.pybench, "run", "hosts.toml", "--sbatch", "--", "--nodes=2") as process:
        out, _ = process.communicate(timeout=LIMIT_S)
    place.slurm = Cluster(place.slurm.folder)
    assert process.returncode == 3, out
    assert re.search(r"pybench: sbatch: .*; start munge on this host", out), out


@pytest.mark.parametrize(
    "names",
    [
        [f"n{number}" for number in range(1, 17) if number != 6],
        ["n01", "n02", "n9", "n10", "n11"],
        ["n8", "n09", "n10"],
        ["a1", "b1", "a2", "b-gpu", "login", "n99", "n100", "n0100"],
    ],
)
def test_names_of_nodes_are_put_together_as_slurm_does(slurm: Cluster, names: list[str]) -> None:
    """A real scontrol and pybench expand a list to the same nodes."""
    text = slurm.command("scontrol", "show", "hostlistsorted", ",".join(names)).strip()
    assert node_ranges(names) == text
    assert sorted(expand_nodes(text)) == sorted(names)


def _tasks_of(node: str, folder: Path) -> list[int]:
    """Ids of the tasks that Slurm started on a node, in this folder."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            above = Path(f"/proc/{parent}/cmdline").read_bytes()
            here = (process / "cwd").readlink()
        except (OSError, IndexError):
            continue
        if f"SLURMD_NODENAME={node}".encode() in environment and b"slurmstepd" in above and here == folder:
            found.append(int(process.name))
    return found
