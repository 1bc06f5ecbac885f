"""A staged worker that begins with torch imported."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.worker.conftest import RunWorker, run_staged
from tests.worker.torch.torchrun import torchrun

Start = Callable[..., list[list[dict[str, Any]]]]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """A second thread only waits for the first one's next small product, and takes the other tests' core."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def frozen_libraries() -> Iterator[None]:
    """Spare torch's objects the collections of garbage in a test: each would take 0.15 s."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def run_worker(stage: Path, warm_python: Path) -> RunWorker:
    """:func:`run_staged` with the test's own stage."""
    return partial(run_staged, stage, python=warm_python)


@pytest.fixture
def run_cold_worker(stage: Path) -> RunWorker:
    """The same, by a Python that has imported nothing."""
    return partial(run_staged, stage)


@pytest.fixture(scope="session")
def start(warm_python: Path) -> Start:
    """Start a number of ranks with specs, a result file and optionally another script; returns each rank's results."""

    def found(
        num_ranks: int, specs: list[dict[str, Any]], out: Path, script: str = "train_ranks.py"
    ) -> list[list[dict[str, Any]]]:
        torchrun(warm_python, num_ranks, script, json.dumps(specs), str(out))
        return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(num_ranks)]

    return found
