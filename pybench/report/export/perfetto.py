"""A run as a trace for Perfetto: power and clock of each GPU and its memory, temperature, attempts, steps, phases.

The form is Chrome's JSON, as torch's profiler writes it: "Trace Event Format", events X (slice), C (counter) and M
(names). Times are CLOCK_REALTIME in µs.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from pybench.core.joint_step import phase_cuts_ns
from pybench.model.errors import UsageError
from pybench.model.record import Record, gpu_label
from pybench.power.chart import clock_limits, power_samples
from pybench.power.trace import MISSING, GpuTrace, PowerTrace
from pybench.report.run.view import RunView
from pybench.report.table import printable
from pybench.report.text.labels import short_labels

# Process ids of Linux are below 2^22: those of the groups collide with none of a trace that is merged with this one.
_FIRST_PID = 2**23


class _Tracks:
    """Track numbers by name, and the events so far. Two processes hold the tracks: the host's and the GPUs'."""

    def __init__(self, run_id: str) -> None:
        self.host = _FIRST_PID + 2 * (zlib.crc32(printable(run_id).encode()) % 2**22)
        self.gpus = self.host + 1
        self.events: list[dict[str, Any]] = []
        self._numbers: dict[tuple[int, str], int] = {}
        for pid, name in ((self.host, f"pybench {run_id}"), (self.gpus, "GPUs")):
            self._add("M", pid, 0, "process_name", args={"name": printable(name)})

    def slice(self, pid: int, track: str, name: str, start_ns: int, end_ns: int) -> None:
        """A span on a track."""
        start_us, end_us = _us(start_ns), _us(end_ns)
        self._add("X", pid, self._number(pid, track), printable(name), ts=start_us, dur=end_us - start_us)

    def counter(self, track: str, unit: str, times_ns: Iterable[int], values: Iterable[float]) -> None:
        """A value of a GPU at each time."""
        for time_ns, value in zip(times_ns, values, strict=True):
            self._add("C", self.gpus, 0, track, ts=_us(time_ns), args={unit: value})

    def _number(self, pid: int, track: str) -> int:
        if (pid, track) not in self._numbers:
            self._numbers[pid, track] = number = len(self._numbers) + 1
            self._add("M", pid, number, "thread_name", args={"name": printable(track)})
        return self._numbers[pid, track]

    def _add(self, kind: str, pid: int, tid: int, name: str, **more: Any) -> None:  # noqa: ANN401 - values of JSON
        self.events.append({"ph": kind, "pid": pid, "tid": tid, "name": name, **more})


def render(view: RunView) -> bytes:
    """Every attempt that ran, also failed ones with their partial records.

    Raises ``UsageError`` for results without a folder, and for a time that the form has not.
    """
    if view.manifest is None:
        needs = "--format perfetto needs the run's folder; its attempts and traces are not in results.json"
        raise UsageError(f"{view.results.run_id}: {needs}")
    tracks = _Tracks(view.results.run_id)
    for record in view.records:
        trace = view.trace(record.trace)
        offset_ns = realtime_offset_ns(record, trace)
        if offset_ns is None:
            continue
        _attempt(tracks, view, record, trace, offset_ns)
        if trace is not None:
            for gpu in trace.gpus:
                _gpu(tracks, gpu, trace, offset_ns)
        for part in view.other_hosts(record):
            if (theirs := view.trace(part.trace)) is not None:
                for gpu in theirs.gpus:
                    _gpu(tracks, gpu, theirs, offset_ns - part.clock.offset_ns, f"{part.name} ")
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": tracks.events}, separators=(",", ":")).encode()


def realtime_offset_ns(record: Record, trace: PowerTrace | None) -> int | None:
    """CLOCK_REALTIME less CLOCK_MONOTONIC, measured with the trace or at the attempt's start; ``None`` unknown."""
    if trace is not None and len(trace.offsets.realtime_offset_ns):
        return int(trace.offsets.realtime_offset_ns[0])
    return record.realtime_offset_ns


def _attempt(tracks: _Tracks, view: RunView, record: Record, trace: PowerTrace | None, offset_ns: int) -> None:
    """The attempt with its start-up, warm-up and measured steps; every rank's steps with their phases."""

    def add(track: str, name: str, start_ns: int, end_ns: int) -> None:
        tracks.slice(tracks.host, track, name, start_ns + offset_ns, end_ns + offset_ns)

    names = short_labels(view.results.points, with_benchmark=True)
    steps = [step for rank in record.ranks for step in rank.steps]
    began_ns = record.start_ns if trace is None else trace.start_ns
    starts_ns = [*(step.start_ns for step in steps), *([] if began_ns is None else [began_ns])]
    ends_ns = [*(step.end_ns for step in steps), *([trace.end_ns] if trace else [])]
    label = f"{names.get(record.point_id, record.point_id)}, attempt {record.attempt}"
    failed = f" ({record.failure.cause})" if record.failure else ""
    add("attempts", f"{label}{failed}", min(starts_ns), max((*ends_ns, *starts_ns)))
    if not steps:
        return
    measured_ns = min(step.start_ns for step in steps)
    if record.startup_s is not None and began_ns is not None:
        ready_ns = min(began_ns + round(record.startup_s * 1e9), measured_ns)
        add("phases of an attempt", "start-up", began_ns, ready_ns)
        add("phases of an attempt", "warm-up", ready_ns, measured_ns)
    add("phases of an attempt", "measured steps", measured_ns, max(step.end_ns for step in steps))
    for rank in record.ranks:
        track = f"rank {rank.header.rank}"
        for step in rank.steps:
            add(track, f"step {step.index}", step.start_ns, step.end_ns)
            for span in step.spans:
                add(f"{track} phases", span.name, span.start_ns, span.end_ns)
            start_ns, cut_ns, end_ns = phase_cuts_ns((step,))
            if start_ns < cut_ns < end_ns:
                add(f"{track} phases", "prefill", start_ns, cut_ns)
                add(f"{track} phases", "decode", cut_ns, end_ns)


def _gpu(tracks: _Tracks, gpu: GpuTrace, trace: PowerTrace, offset_ns: int, host: str = "") -> None:
    name = host + gpu_label(gpu.uuid, gpu.index)
    times_ns, power_mw = power_samples(gpu, trace)
    polled, slow = gpu.polled, gpu.slow
    columns = (
        ("power", "W", times_ns, power_mw, 1e-3),
        ("memory power", "W", polled.t_ns, polled.memory_mw, 1e-3),
        ("SM clock", "MHz", slow.t_ns, slow.sm_clock_mhz, 1.0),
        ("memory clock", "MHz", slow.t_ns, slow.memory_clock_mhz, 1.0),
        ("temperature", "°C", slow.t_ns, slow.temperature_c, 1.0),
    )
    for what, unit, recorded_ns, recorded, factor in columns:
        at_ns, values = np.asarray(recorded_ns, np.int64), np.asarray(recorded, np.int64)
        known = values != MISSING
        if len(values) and known.any():
            shown = np.round(values[known] * factor, 3)
            tracks.counter(printable(f"{name} {what}"), unit, (at_ns[known] + offset_ns).tolist(), shown.tolist())
    for start_ns, end_ns, words in clock_limits(gpu, trace):
        tracks.slice(tracks.gpus, f"{name} clock held by", words, start_ns + offset_ns, end_ns + offset_ns)


def _us(time_ns: int) -> int:
    """When an event was, in µs. Raises ``UsageError`` for a time before 1970: journal or trace have it."""
    if time_ns < 0:
        raise UsageError(
            f"a time of the run lies {time_ns / 1e9:g} s from 1970, which no trace of Perfetto can have: "
            "its journal or a power trace was edited or damaged; `pybench verify` checks both"
        )
    return time_ns // 1000
