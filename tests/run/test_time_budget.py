"""How long a run will take, by what its attempts took before, and the figure of an attempt's line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pybench.files.run import folder
from pybench.model.progress import Progress
from pybench.model.record import Record
from pybench.run.attempt import attempt_figure
from pybench.run.loop import OpenRun
from pybench.run.suite_plan import TimeBudget
from tests.build import Build

build = Build()
ONE, TWO = build.generate(1), build.generate(2)


def _record(point: Any, took_s: float) -> Record:
    (record,) = build.measured(point, [[2.0, 1.0, 4.0]])
    return dataclasses.replace(record, duration_s=took_s, point_digest=point.digest)


class Folder:
    """Run folders as far as the estimate looks: names, fingerprints, records."""

    kept: dict[str, tuple[str, tuple[Record, ...]]]

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = self

    @classmethod
    def open(cls, path: Path) -> Folder:
        return cls(path)

    def read_manifest(self) -> Any:
        return SimpleNamespace(fingerprint=self.kept[self.path.name][0])

    def records(self) -> tuple[Record, ...]:
        return self.kept[self.path.name][1]


@pytest.fixture
def now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A run of ``main``, an older one, a newer one of another machine and one of another suite."""
    Folder.kept = {
        "20260101T000000Z-main": ("here", (_record(ONE, 10.0), _record(ONE, 20.0), _record(ONE, 90.0))),
        "20260102T000000Z-main": ("elsewhere", (_record(ONE, 1.0),)),
        "20260103T000000Z-other": ("here", (_record(ONE, 2.0),)),
        "20260104T000000Z-main": ("here", ()),
    }
    for name in Folder.kept:
        (tmp_path / name).mkdir()
    monkeypatch.setattr(folder, "RunFolder", Folder)
    return Folder(tmp_path / "20260104T000000Z-main")


def _expected_s(now: Any, owed: Any, own: Any = ()) -> float | None:
    plan = SimpleNamespace(points=(ONE, TWO))
    manifest: Any = SimpleNamespace(suite=SimpleNamespace(name="main"), fingerprint="here", plan=plan)
    run: Any = SimpleNamespace(folder=now, manifest=manifest)
    return OpenRun(run, list(own), Progress(), TimeBudget(None)).expected_s(owed)


def test_an_earlier_run_here_gives_the_median_of_each_point(now: Folder) -> None:
    """Two attempts at 20 s each; neither another machine nor another suite counts."""
    assert _expected_s(now, ((ONE, 1), (ONE, 2))) == 40.0


def test_a_point_that_was_never_measured_leaves_it_unknown(now: Folder) -> None:
    """Half an estimate would mislead."""
    assert _expected_s(now, ((ONE, 1), (TWO, 1))) is None
    assert _expected_s(now, ()) is None


def test_the_runs_own_attempts_come_first(now: Folder) -> None:
    """A resumed run knows itself best; the earlier run still knows the other point."""
    assert _expected_s(now, ((ONE, 2), (TWO, 2)), (_record(TWO, 5.0),)) == 25.0
    assert _expected_s(now, ((ONE, 2),), (_record(ONE, 7.0),)) == 7.0


def test_the_figure_is_the_median_step_of_the_tables_metric() -> None:
    """40 tokens in steps of 2, 1 and 4 s: 20, 40 and 10 tokens/s, of which 20 is the median; the mean is 23.3."""
    figure = attempt_figure(ONE, _record(ONE, 1.0))
    assert figure is not None
    assert (figure.value, figure.unit) == (20.0, "tokens/s")


def test_a_failed_attempt_has_no_figure() -> None:
    """Nothing measured is no number."""
    assert attempt_figure(ONE, build.failed(ONE)) is None
