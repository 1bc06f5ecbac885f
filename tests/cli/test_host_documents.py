"""The ways to start several hosts that docs/hosts.md shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from pybench.cli.main import main
from pybench.cli.run import run
from tests.documents import DOCS, blocks
from tests.processes import wait_for
from tests.programs import shell_program


def _shown(language: str) -> str:
    (text,) = (text for document, text in blocks(language) if document == DOCS / "hosts.md")
    return text


def _given(words: Sequence[str]) -> dict[str, Any]:
    """Options of a command ``pybench run ...``, as the command line understands them."""
    assert list(words[:2]) == ["pybench", "run"]
    # Below the command line's own context: a command keeps the names of its help option from its first use on.
    with main.make_context("pybench", ["run"], resilient_parsing=True) as context:
        return dict(run.make_context("run", list(words[2:]), parent=context).params)


def test_the_loop_over_ssh_starts_the_host_that_leads_last(tmp_path: Path) -> None:
    """And exits as that one does."""
    calls = tmp_path / "calls"
    shell_program(
        tmp_path / "ssh",
        f'echo "$PYBENCH_RENDEZVOUS_SECRET $*" > {calls}.part.$3\nmv {calls}.part.$3 {calls}.$3\n'
        "[ $3 = node1 ] && exit 4\nexit 0",
    )
    shell_program(tmp_path / "openssl", '[ "$*" = "rand -hex 32" ] && printf %064d 7')
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(("bash", "-c", _shown("bash")), env={**os.environ, "PATH": path}, check=False)
    assert done.returncode == 4
    for host in ("node1", "node2"):
        call = Path(f"{calls}.{host}")
        wait_for(call.exists)  # the loop waits for the last one only
        secret, *words = shlex.split(call.read_text())
        assert len(secret) == 64
        assert words[:3] == ["-o", "SendEnv=PYBENCH_RENDEZVOUS_SECRET", host]
        found = _given(words[3:])
        assert (found["rendezvous"], found["nodes"]) == ("node1:29400", 2)


def test_the_kubernetes_job_starts_each_pod_with_its_number() -> None:
    """There is one pod for each host; all meet at the name of the first."""
    service, job = yaml.safe_load_all(_shown("yaml"))
    spec = job["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    command = re.sub(r"\$JOB_COMPLETION_INDEX", "1", container["args"][0])
    found = _given(shlex.split(command.removeprefix("exec ")))
    assert (found["nodes"], found["node_rank"]) == (spec["completions"], 1) == (spec["parallelism"], 1)
    assert found["rendezvous"] == f"{job['metadata']['name']}-0.{pod['subdomain']}:29400"
    assert service["metadata"]["name"] == pod["subdomain"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert [variable["name"] for variable in container["env"]] == ["PYBENCH_RENDEZVOUS_SECRET"]
