"""A run's event files, read back by TensorBoard's own reader."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorboard")

from pybench.model.errors import UsageError
from pybench.model.results import Results
from pybench.model.suite import Plan
from pybench.model.wire import Work
from pybench.power.trace import GpuTrace, OffsetColumns, PolledColumns, PowerTrace, SeriesColumns
from pybench.power.trace_file import write_trace
from pybench.report.export.tensorboard import export
from pybench.report.run.view import RunView
from tests.build import Build
from tests.builders import MANIFEST

SECOND = 1_000_000_000
EPOCH_S = 1_767_225_600  # 2026-01-01T00:00:00Z, when the records say they began


@pytest.fixture
def run(tmp_path: Path, empty: Results) -> RunView:
    """One good attempt of two steps with a trace from 1 s before them, and one that failed."""
    build = Build()
    point = build.train()
    (Path(tmp_path) / "run").mkdir()
    steps = build.steps([2.0, 2.0], Work(samples=4), start_s=10.0)
    steps = tuple(dataclasses.replace(step, loss=5.0 - step.index) for step in steps)
    rank = dataclasses.replace(build.rank(steps), losses=(7.0, 6.0, 5.0, 4.0))
    trace = PowerTrace(
        start_ns=9 * SECOND,
        end_ns=15 * SECOND,
        gpus=(
            GpuTrace(
                uuid="a",
                index=0,
                name="g",
                series=SeriesColumns(realtime_ns=((EPOCH_S + 1) * SECOND,), power_mw=(400_000,)),
            ),
            GpuTrace(
                uuid="b",
                index=1,
                name="g",
                polled=PolledColumns(
                    t_ns=(9 * SECOND, 11 * SECOND),
                    instant_mw=(-1, 300_000),
                    average_mw=(-1, -1),
                    memory_mw=(-1, -1),
                ),
            ),
        ),
        offsets=OffsetColumns(t_ns=(9 * SECOND,), realtime_offset_ns=((EPOCH_S - 9) * SECOND,), set_by_ns=(0,)),
    )
    write_trace(trace, tmp_path / "run" / "trace.npz")
    good = dataclasses.replace(build.record(point, (rank,)), trace="trace.npz", point_digest=point.digest)
    manifest = dataclasses.replace(MANIFEST, plan=Plan(points=(point,), skips=()))
    records = (good, build.failed(point, 2))
    return RunView(results=empty, manifest=manifest, records=records, path=tmp_path / "run")


def scalars(path: Path) -> dict[str, list[tuple[int, float, float]]]:
    """By tag: step, value, time."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader  # noqa: PLC0415

    found: dict[str, list[tuple[int, float, float]]] = {}
    for file in sorted(path.iterdir()):
        for event in LegacyEventFileLoader(str(file)).Load():
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value, event.wall_time))
    return found


def test_steps_losses_and_watts_meet_on_one_clock(run: RunView, tmp_path: Path) -> None:
    """The trace began 1 s before the first step, which ends 3 s after the attempt's start."""
    out = tmp_path / "my events"
    said = export(run, out)
    assert said == f"1 attempt written; look at them with: tensorboard --logdir '{out}'"
    assert [path.name for path in out.iterdir()] == ["fit_data_parallel=1.1"]
    found = scalars(out / "fit_data_parallel=1.1")
    assert found["step/tokens_per_s"] == [(0, 200.0, EPOCH_S + 3), (1, 200.0, EPOCH_S + 5)]
    assert found["step/loss"] == [(0, 5.0, EPOCH_S + 3), (1, 4.0, EPOCH_S + 5)]
    assert [value for _, value, _ in found["loss_from_first_step"]] == [7.0, 6.0, 5.0, 4.0]
    assert found["power_w/gpu0"] == [(0, 400.0, EPOCH_S + 1)]
    assert found["power_w/gpu1"] == [(0, 300.0, EPOCH_S + 2)]


def test_a_second_export_replaces_the_first(run: RunView, tmp_path: Path) -> None:
    for _ in range(2):
        export(run, tmp_path / "out")
    assert len(scalars(tmp_path / "out" / "fit_data_parallel=1.1")["step/loss"]) == 2


def test_without_the_package_it_says_so(run: RunView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And how to get it; nothing is written."""
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(UsageError, match=r"needs the package tensorboard .* pip install tensorboard"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_can_not_be_made(run: RunView, tmp_path: Path) -> None:
    """No traceback for a user's mistake."""
    (tmp_path / "out").write_text("a file")
    with pytest.raises(UsageError, match="cannot write event files"):
        export(run, tmp_path / "out")
