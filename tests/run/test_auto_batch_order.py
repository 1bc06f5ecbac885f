"""The next attempt's order after a batch size was found."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pybench.model.wire import Metric, Work
from pybench.model.workloads.train import Train
from pybench.run.attempt import work_order
from pybench.run.engines.local import Local
from pybench.run.prepare import prepare_run
from tests.build import Build
from tests.run.drill import suite_text, table_text


def test_every_attempt_takes_the_size_that_the_first_found(tmp_path: Path, no_driver: None) -> None:
    """Searched once for each point; the record keeps what was found."""
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected" / "drill.toml").write_text(table_text())
    (tmp_path / "drill.toml").write_text(suite_text(max_attempts=2, time_limit_s=9))
    run = prepare_run(tmp_path / "drill.toml", tmp_path / "runs", lambda _: Local())
    build = Build()
    plain = build.train()
    assert isinstance(plain.settings, Train)
    point = dataclasses.replace(plain, settings=dataclasses.replace(plain.settings, batch_size_per_gpu="auto"))
    assert work_order(point, "cuda", run.folder.journal.records()).settings.to_json()["batch_size_per_gpu"] == "auto"
    found = (Metric(name="batch_size_per_gpu", value=12, unit="samples"),)
    rank = dataclasses.replace(build.rank(build.steps([1.0], Work(samples=12))), metrics=found)
    run.folder.journal.append(build.record(point, (rank,)))
    assert work_order(point, "cuda", run.folder.journal.records()).settings.to_json()["batch_size_per_gpu"] == 12
