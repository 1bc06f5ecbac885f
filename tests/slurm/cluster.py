"""A Slurm cluster on this machine: slurmctld and two slurmd or more, with munge, all of it in one folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import port_for
from tests.processes import wait_for
from tests.programs import shell_program

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "munged", "mungekey")
_LIMIT_S = 60
# Names resolve to this machine; each slurmd has its own name, port and folders.
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
ReturnToService=2
KillWait=1
SchedulerParameters=batch_sched_delay=0
MpiDefault=none
TaskProlog={folder}/prolog
Prolog={folder}/node-prolog
Epilog={folder}/node-epilog
NodeName=n[1-{count}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{node_ports}] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """Programs of a cluster that this machine lacks, and the right to start them."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    absent = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    return absent or ([] if os.getuid() == 0 else ["root"])


@dataclass
class Cluster:
    """Nodes that are idle."""

    folder: Path
    num_nodes: int = 2
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """``n1`` and so on."""
        return tuple(f"n{number}" for number in range(1, self.num_nodes + 1))

    @property
    def variables(self) -> dict[str, str]:
        """What Slurm's commands need."""
        path = f"{os.environ['PATH']}:/usr/sbin"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf"), **self.environment}

    def command(self, *words: str, limit_s: float = _LIMIT_S) -> str:
        """Output of one of Slurm's commands."""
        done = subprocess.run(words, env=self.variables, capture_output=True, text=True, timeout=limit_s, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def state(self, node: str) -> str:
        """Of one node, in lower case: ``idle``, ``drained``."""
        return self.command("sinfo", "-h", "-n", node, "-o", "%T").strip()

    @contextmanager
    def checked_by(self, role: str, script: str) -> Iterator[None]:
        """Within it, every node runs a script before (``prolog``) or after (``epilog``) each job."""
        program = shell_program(self.folder / f"check-{role}", script)
        try:
            yield
        finally:
            program.unlink()

    def restore(self, node: str) -> None:
        """Cancel all jobs and make a drained node idle again."""
        self.command("scancel", "--state=PENDING")
        self.command("scancel", "--state=RUNNING")
        if self.state(node) != "idle":
            self.command("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        """Return once all are idle."""
        deadline = time.monotonic() + _LIMIT_S
        while self.command("sinfo", "-h", "-N", "-o", "%T").split() != ["idle"] * self.num_nodes:
            assert time.monotonic() < deadline, self.command("sinfo", "-N", "-l")
            time.sleep(0.1)


@contextmanager
def cluster(folder: Path, num_nodes: int = 2) -> Iterator[Cluster]:
    """Start one, and end all its daemons."""
    made = Cluster(folder, num_nodes)
    ports = [port_for(made) for _ in range(1 + num_nodes)]
    text = _CONFIGURATION.format(
        host=socket.gethostname().partition(".")[0],
        folder=folder,
        ports=ports,
        count=num_nodes,
        node_ports=",".join(map(str, ports[1:])),
    )
    (folder / "slurm.conf").write_text(text)
    # Two hosts on one machine do not wait for each other's cores.
    shell_program(folder / "prolog", f"echo export PYBENCH_LOCKS={folder}/locks.$SLURMD_NODENAME")
    for role in ("prolog", "epilog"):
        shell_program(folder / f"node-{role}", f"[ ! -e {folder}/check-{role} ] || exec {folder}/check-{role}")
    (folder / "state").mkdir()
    for node in made.nodes:
        (folder / node).mkdir()
    folder.chmod(0o755)
    made.command("mungekey", "-c", "-k", str(folder / "munge.key"))
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for words in _daemons(made):
            log = (folder / f"{words[0]}.{len(daemons)}.out").open("wb")
            with log:
                daemons.append(subprocess.Popen(words, env=made.variables, stdout=log, stderr=subprocess.STDOUT))
            if words[0] == "munged":
                wait_for((folder / "munge.socket").exists, _LIMIT_S)
        made.wait_for_nodes()
        yield made
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in reversed(daemons):
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _daemons(made: Cluster) -> Sequence[tuple[str, ...]]:
    files = [f"--{name}={made.folder}/munge.{ending}" for name, ending in _MUNGE.items()]
    return (
        ("munged", "--foreground", "--force", "--num-threads=2", *files),
        ("slurmctld", "-D", "-i"),
        *(("slurmd", "-D", "-N", node) for node in made.nodes),
    )


_MUNGE = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
