"""One cluster for all tests, where this machine has Slurm."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, cluster, missing


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """Skips, or fails where PYBENCH_REQUIRE_SLURM is 1, without Slurm's programs."""
    if absent := missing():
        assert os.environ.get("PYBENCH_REQUIRE_SLURM") != "1", f"Slurm lacks {', '.join(absent)}"
        pytest.skip(f"no Slurm here: {', '.join(absent)}")
    # Sockets have short paths.
    with tempfile.TemporaryDirectory(prefix="pybench-slurm-") as folder, cluster(Path(folder)) as made:
        yield made
