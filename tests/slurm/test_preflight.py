"""The prolog and epilog of docs/preflight on a Slurm node with a stand-in for ``pybench``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.documents import DOCS
from tests.processes import wait_for
from tests.programs import shell_program
from tests.slurm.cluster import Cluster

CHECK = DOCS / "preflight" / "slurm-check"
# Exit code 1 is a fail, 3 a machine that could not measure; 2 is a wrong command line, 4 undecided.
CODES = {0: "idle", 2: "idle", 4: "idle", 1: "drained", 3: "drained"}


@pytest.mark.parametrize("role", ["prolog", "epilog"])
@pytest.mark.parametrize(("code", "state"), CODES.items())
def test_a_bad_node_is_drained(slurm: Cluster, tmp_path: Path, role: str, code: int, state: str) -> None:
    """Only a bad node is; the run of its check is kept. The job's variables do not reach pybench."""
    line = json.dumps({"verdict": code})
    variables = f"env | sort > {tmp_path}/variables"
    shell_program(tmp_path / "pybench", f'{variables}; echo "$@" > {tmp_path}/words; echo {line!r}; exit {code}')
    settings = f"SLURM_JOB_GPUS=0,1 PYBENCH={tmp_path}/pybench PYBENCH_KEPT={tmp_path}/kept"
    with slurm.checked_by(role, f'[ "$SLURMD_NODENAME" = n1 ] || exit 0; {settings} exec {CHECK}'):
        job = subprocess.Popen(("srun", "--nodelist=n1", "true"), env=slurm.variables)
        try:
            wait_for(lambda: slurm.state("n1") == state and (tmp_path / "words").exists(), 60)
            if state == "idle":
                assert job.wait(60) == 0
        finally:
            job.kill()
            job.wait()
            slurm.restore("n1")
    assert "--require gpus=2 " in (tmp_path / "words").read_text()
    assert "CUDA_VISIBLE_DEVICES=0,1\n" in (tmp_path / "variables").read_text()
    assert "SLURM_" not in (tmp_path / "variables").read_text()
    assert json.loads((tmp_path / "kept" / "last.json").read_text()) == {"verdict": code}
    assert bool(list((tmp_path / "kept").glob("job-*"))) == (state == "drained")


def test_a_job_without_gpus_is_not_checked(tmp_path: Path) -> None:
    """Its prolog ends at once."""
    shell_program(tmp_path / "pybench", f"touch {tmp_path}/called")
    done = subprocess.run([CHECK], env={"PYBENCH": str(tmp_path / "pybench")}, check=False)
    assert done.returncode == 0
    assert not (tmp_path / "called").exists()
