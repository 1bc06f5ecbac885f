"""A run whose worker breaks in one point after another: source is appended to a module of the staged worker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pybench.model.progress import Progress
from pybench.model.wire import Failure
from pybench.run.engines.local import Local
from pybench.run.engines.process import processes_marked
from pybench.run.loop import Run
from pybench.run.prepare import prepare_run
from tests.builders import NO_DRIVER


def measure_broken(python: Path, folder: Path, benchmarks: Sequence[str], module: str, source: str) -> Run:
    """Run the benchmarks with ``source`` behind that of ``module``; afterwards no process of the run is left."""
    (folder / "drills.toml").write_text('schema = 1\nname = "drills"\n' + "".join(benchmarks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*NO_DRIVER)
        run = prepare_run(folder / "drills.toml", folder / "runs", lambda _: Local(str(python)))
        staged = run.folder.worker / module
        staged.write_text(staged.read_text() + source)
        run.finish(Progress())
    assert list(processes_marked(f"{run.folder.mark}/")) == []
    return run


def failure_of(run: Run, point_id: str) -> Failure:
    """Of the point's only attempt, which left no figure."""
    (record,) = [record for record in run.folder.journal.records() if record.point_id == point_id]
    (point,) = [point for point in run.results().points if point.id == point_id]
    assert record.failure is not None
    ran_out = record.failure.cause == "out_of_memory"
    assert (point.status, point.metrics) == ("does_not_fit" if ran_out else "failed", {})
    return record.failure
