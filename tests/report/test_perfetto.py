"""The trace for Perfetto, in Chrome's JSON form."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pybench.model.errors import UsageError
from pybench.model.results import Results
from pybench.power.trace import MISSING, PolledColumns
from pybench.power.trace_file import write_trace
from pybench.report.export.perfetto import render
from pybench.report.run.view import RunView
from tests.report.page_run import SECOND, power_trace, run_in_waves, run_over_hosts, traced_run

MICRO = 1_000_000


def _read(view: RunView) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(render(view))["traceEvents"]
    return events


@pytest.fixture
def trace(results: Results, tmp_path: Path) -> Any:
    """Two good attempts and a failed one that left nothing."""
    return _read(traced_run(tmp_path, results))


def _tracks(trace: Any) -> dict[tuple[int, int], str]:
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in trace if event["name"] == "thread_name"}


def _slices(trace: Any, name: str) -> list[tuple[str, float, float]]:
    """Name, start and end in s of a track's spans."""
    tracks = _tracks(trace)
    spans = (event for event in trace if event["ph"] == "X" and tracks[event["pid"], event["tid"]] == name)
    return [(span["name"], span["ts"] / MICRO, (span["ts"] + span["dur"]) / MICRO) for span in spans]


def _counter(trace: Any, name: str) -> list[tuple[float, float]]:
    """Time in s and value of a counter's readings."""
    readings = (event for event in trace if event["ph"] == "C" and event["name"] == name)
    return [(event["ts"] / MICRO, *event["args"].values()) for event in readings]


def test_every_event_has_what_viewers_need(trace: Any) -> None:
    """A process, a track and a time in whole µs; no process id that Linux gives."""
    assert {event["ph"] for event in trace} == {"M", "X", "C"}
    assert all(isinstance(event["ts"], int) for event in trace if event["ph"] != "M")
    assert min(event["pid"] for event in trace) > 2**22
    assert len({event["pid"] for event in trace}) == 2


def test_power_of_each_gpu_is_a_counter_in_watts(trace: Any) -> None:
    """600 samples an attempt, with the peak of 700 W and a mW more for each GPU; one vertical axis for all."""
    for index in range(4):
        values = [value for _, value in _counter(trace, f"GPU {index} power")]
        assert len(values) == 2 * 600
        assert max(values) == pytest.approx(700.0 + index / 1000)
    units = {unit for event in trace if event["ph"] == "C" for unit in event["args"]}
    assert units == {"W", "MHz", "°C"}


def test_memory_has_counters_of_power_and_clock(results: Results, tmp_path: Path) -> None:
    """The trace also has the memory's own power; a failed reading is left out."""
    view = traced_run(tmp_path, results, num_gpus=1, attempts=1)
    trace = power_trace(1, 600)
    polled = PolledColumns(
        t_ns=(2 * SECOND, 3 * SECOND), instant_mw=(1, 1), average_mw=(1, 1), memory_mw=(92_500, MISSING)
    )
    gpus = (dataclasses.replace(trace.gpus[0], polled=polled),)
    write_trace(dataclasses.replace(trace, gpus=gpus), tmp_path / "trace.1.npz")
    found = _read(view)
    assert _counter(found, "GPU 0 memory power") == [(2.0, 92.5)]
    assert {value for _, value in _counter(found, "GPU 0 memory clock")} == {3201.0}


def test_steps_and_phases_stand_where_they_were(trace: Any) -> None:
    """Steps of 2, 2, 3.6 and 2 s from 2 s on, the first tenth of each is prefill; by hand."""
    steps = [(name, round(start, 6), round(end, 6)) for name, start, end in _slices(trace, "rank 0")][:4]
    assert steps == [("step 0", 2.0, 4.0), ("step 1", 4.0, 6.0), ("step 2", 6.0, 9.6), ("step 3", 9.6, 11.6)]
    phases = [(name, round(start, 6), round(end, 6)) for name, start, end in _slices(trace, "rank 0 phases")][:2]
    assert phases == [("prefill", 2.0, 2.2), ("decode", 2.2, 4.0)]
    assert [name for name, _, _ in _slices(trace, "attempts")] == ["decode TP 1, attempt 1", "decode TP 1, attempt 2"]


def test_phases_that_are_not_apart_have_no_spans(results: Results, tmp_path: Path) -> None:
    """The phases match the tables; the steps stay."""
    trace = _read(run_in_waves(tmp_path, results))
    assert len(_slices(trace, "rank 0")) == 4
    assert _slices(trace, "rank 0 phases") == []


def test_start_up_and_clock_limits_are_spans(trace: Any) -> None:
    """Start-up ends where measuring begins at the latest; a power limit lasts until the next reading."""
    assert _slices(trace, "phases of an attempt")[:3] == [
        ("start-up", 0.0, 2.0),
        ("warm-up", 2.0, 2.0),
        ("measured steps", 2.0, 11.6),
    ]
    assert _slices(trace, "GPU 0 clock held by")[0] == ("power limit", 2.0, 3.0)


def test_gpus_of_other_hosts_have_tracks_of_their_own(results: Results, tmp_path: Path) -> None:
    """With the host's name, at the same moments whatever its clock shows."""
    trace = _read(run_over_hosts(tmp_path, results))
    assert {"GPU 0 power", "n2 GPU 0 power"} <= {event["name"] for event in trace if event["ph"] == "C"}
    here, there = (_slices(trace, f"{host}GPU 0 clock held by") for host in ("", "n2 "))
    assert here == there != []


def test_without_power_the_wall_clock_is_that_of_the_attempts_start(results: Results, tmp_path: Path) -> None:
    """Recorded then; start-up and warm-up are there too."""
    view = traced_run(tmp_path, results)
    day_ns = 1_767_225_600 * SECOND
    records = tuple(
        dataclasses.replace(record, trace=None, start_ns=SECOND, realtime_offset_ns=day_ns, startup_s=0.5)
        for record in view.records
    )
    trace = _read(dataclasses.replace(view, records=records))
    assert _slices(trace, "rank 0")[0] == ("step 0", 1_767_225_602.0, 1_767_225_604.0)
    assert _slices(trace, "phases of an attempt")[0] == ("start-up", 1_767_225_601.0, 1_767_225_601.5)


def test_a_time_before_1970_is_an_error(results: Results, tmp_path: Path) -> None:
    """A start-up of minus 80 years, which the journal's checks let pass."""
    view = traced_run(tmp_path, results)
    early = tuple(dataclasses.replace(record, startup_s=-2.5e9) for record in view.records)
    with pytest.raises(UsageError, match=r"s from 1970, which no trace of Perfetto can have: .*`pybench verify`"):
        render(dataclasses.replace(view, records=early))


def test_hostile_names_are_printable(hostile: Results, tmp_path: Path) -> None:
    """A point's name in a track of the viewer."""
    trace = _read(traced_run(tmp_path, hostile))
    names = [event["name"] for event in trace] + [*_tracks(trace).values()]
    assert all(char.isprintable() for name in names for char in name)
