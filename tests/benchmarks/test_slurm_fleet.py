"""Sixteen slurmd on this machine: the pairs of three rounds, each a run over two nodes, collected and judged.

A healthy fleet, and one with a slow node and a slow link, both by 5 %. Speeds are planted in the fake workers' steps,
with a scatter of 0.3 %; Slurm, srun, the nodes' runners and everything from their records on are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pybench.fleet.pairs import DECISION_ROUNDS, Pair, pair_rounds
from tests.builders import NO_DRIVER, training_over_hosts
from tests.programs import fake_python
from tests.slurm.cluster import Cluster, cluster, missing

PYBENCH = str(Path(sys.executable).with_name("pybench"))
LIMIT_S = 900
SLOW = 1 / 0.95
# Below the range from which the kernel gives ports to the connections of Slurm and of the other runs.
FIRST_PORT = 21000
SLOW_NODE, SLOW_LINK = "n6", ("n15", "n2")


@pytest.fixture(scope="module")
def sixteen() -> Iterator[Cluster]:
    """One cluster for both fleets."""
    if absent := missing():
        pytest.skip(f"no Slurm here: {', '.join(absent)}")
    with tempfile.TemporaryDirectory(prefix="pybench-slurm-") as folder, cluster(Path(folder), 16) as made:
        yield made


def _started(slurm: Cluster, folder: Path, pair: Pair, stretch: float, seed: int) -> subprocess.Popen[str]:
    """The suite in an allocation of two nodes, whose workers' steps are so much longer than usual."""
    folder.mkdir(parents=True)
    (folder / "hosts.toml").write_text(training_over_hosts(data_parallel=2, attempts=2))
    fake_python(folder / "python", "ok", FAKE_STRETCH=str(stretch), FAKE_NOISE=f"{seed}:0.003", FAKE_STEP_MS="100")
    run = (PYBENCH, "run", "hosts.toml", "--python", "./python", "--rendezvous", f"127.0.0.1:{FIRST_PORT + seed}")
    return subprocess.Popen(
        ("salloc", f"--nodelist={','.join(pair)}", "--nodes=2", "--exclusive", "--quiet", *run, "--join-limit", "300s"),
        cwd=folder,
        env={**slurm.variables, NO_DRIVER[0]: NO_DRIVER[1]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _measured(slurm: Cluster, collected: Path, slow: Mapping[Pair | str, float]) -> dict[str, Any]:
    """Measure the pairs round by round, all of a round at the same time; what ``fleet check`` finds."""
    seed = 0
    for number, pairs in enumerate(pair_rounds(slurm.nodes)[:DECISION_ROUNDS], 1):
        runs = []
        for pair in pairs:
            seed += 1
            stretch = max(slow.get(one, 1.0) for one in (*pair, (min(pair), max(pair))))
            runs.append(_started(slurm, collected / f"{number}" / "-".join(pair), pair, stretch, seed))
        for run in runs:
            out, _ = run.communicate(timeout=LIMIT_S)
            assert run.returncode == 4, out  # nothing is expected but the loss
    found = collected / "found.json"
    done = subprocess.run(
        (PYBENCH, "fleet", "check", *map(str, sorted(collected.glob("*/*/runs"))), "--json", str(found)),
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    assert done.returncode in {1, 4}, done.stdout + done.stderr
    print(done.stdout)
    result: dict[str, Any] = json.loads(found.read_text())
    return result


def _named(found: dict[str, Any]) -> set[str | tuple[str, ...]]:
    nodes = {node["name"] for node in found["nodes"] if node["state"] in {"bad", "suspect"}}
    return nodes | {tuple(sorted(link["nodes"])) for link in found["links"]}


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize(
    ("slow", "truth"),
    [
        ({}, set()),
        ({SLOW_NODE: SLOW, SLOW_LINK: SLOW}, {SLOW_NODE, SLOW_LINK}),
    ],
    ids=["healthy", "slow node and link"],
)
def test_a_fleet_of_sixteen(
    benchmark: Any, sixteen: Cluster, tmp_path: Path, slow: Mapping[Pair | str, float], truth: set[Any]
) -> None:
    """Every pair of three rounds is measured; what is slow is named, and nothing else."""
    found = benchmark.pedantic(lambda: _measured(sixteen, tmp_path / "collected", slow), rounds=1)
    assert found["num_pairs"] == 8 * DECISION_ROUNDS
    assert _named(found) == truth
