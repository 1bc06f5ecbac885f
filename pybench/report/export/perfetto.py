"""A run as a Perfetto trace: power and clock of each GPU and its memory, temperature, attempts, steps, phases.

All are on one clock, CLOCK_REALTIME in nanoseconds, which torch's profiler and other recorders write too. Numbers of
messages and fields are those of perfetto's published ``trace_packet.proto``, ``track_event.proto`` and
``track_descriptor.proto``; the few kinds of field that they need are written here, without a protobuf package.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from pybench.core.formulas.joint_step import phase_cuts_ns
from pybench.files.utc_time import utc_time
from pybench.model.errors import UsageError
from pybench.model.health import gpu_label
from pybench.model.record import Record
from pybench.power.chart import clock_limits, power_samples
from pybench.power.trace import MISSING, GpuTrace, PowerTrace
from pybench.report.run.view import RunView
from pybench.report.text.labels import short_labels
from pybench.report.text.printable import printable

_REALTIME = 1
_BEGIN, _END, _COUNTER = 1, 2, 4
_SEQUENCE = 1
_STATE_CLEARED = 1
_HOST, _GPUS = 1, 2
"""Tracks that hold the others: attempts and ranks, GPUs."""


@dataclass
class _Tracks:
    """Track numbers by name, and the packets written so far."""

    packets: list[bytes] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)

    def track(self, name: str, parent: int, unit: str | None = None) -> int:
        """The number of a track below ``parent``, described when it is first named. With ``unit`` it is a counter."""
        key = f"{parent} {name}"
        if key not in self.known:
            self.known[key] = _GPUS + 1 + len(self.known)
            counter = _bytes(8, _text(6, unit) + _text(7, unit)) if unit else b""
            described = _number(1, self.known[key]) + _text(2, name) + _number(5, parent) + counter
            self.packets.append(_packet(_bytes(60, described)))
        return self.known[key]

    def slice(self, track: int, name: str, start_ns: int, end_ns: int) -> None:
        """A named span."""
        begin = _number(9, _BEGIN) + _number(11, track) + _text(23, name)
        self.packets.append(_packet(_time(start_ns) + _bytes(11, begin)))
        self.packets.append(_packet(_time(end_ns) + _bytes(11, _number(9, _END) + _number(11, track))))

    def counter(self, track: int, times_ns: Iterable[int], values: Iterable[float]) -> None:
        """A value at each time."""
        head = _number(9, _COUNTER) + _number(11, track) + _key(44, 1)
        for time_ns, value in zip(times_ns, values, strict=True):
            event = head + struct.pack("<d", value)
            self.packets.append(_packet(_time(int(time_ns)) + _bytes(11, event)))


def render(view: RunView) -> bytes:
    """A protobuf ``Trace`` of every attempt that ran, failed ones with what was recorded of them.

    Raises ``UsageError`` for results without a folder, and for a time that the form has not.
    """
    view.require_attempts("perfetto")
    tracks = _Tracks(packets=[*_parents(view)])
    for record in view.records:
        trace = view.trace(record.trace)
        offset_ns = _offset_ns(record, trace)
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
    return b"".join(tracks.packets)


def _parents(view: RunView) -> Iterator[bytes]:
    """The clock, then the two groups of tracks."""
    began_ns = int(utc_time(view.results.provenance.created_utc).timestamp()) * 1_000_000_000
    clock = _bytes(1, _number(1, _REALTIME) + _number(2, began_ns))
    defaults = _bytes(59, _number(58, _REALTIME)) + _number(13, _STATE_CLEARED)
    yield _packet(_bytes(6, clock + _number(2, _REALTIME)) + defaults)
    for number, name in ((_HOST, f"pybench {view.results.run_id}"), (_GPUS, "GPUs")):
        yield _packet(_bytes(60, _number(1, number) + _bytes(3, _number(1, number) + _text(6, name))))


def _offset_ns(record: Record, trace: PowerTrace | None) -> int | None:
    """CLOCK_REALTIME less CLOCK_MONOTONIC: measured with the trace, else by the attempt's start (in s)."""
    if trace is not None and len(trace.offsets.realtime_offset_ns):
        return int(trace.offsets.realtime_offset_ns[0])
    starts = [step.start_ns for rank in record.ranks for step in rank.steps]
    if trace is not None:
        starts.append(trace.start_ns)
    if not starts:
        return None
    began_ns = int(utc_time(record.started_utc).timestamp()) * 1_000_000_000
    return began_ns - min(starts)


def _attempt(tracks: _Tracks, view: RunView, record: Record, trace: PowerTrace | None, offset_ns: int) -> None:
    """The attempt with its start-up, warm-up and measured steps; every rank's steps with their phases."""
    names = short_labels(view.results.points, with_benchmark=True)
    steps = [step for rank in record.ranks for step in rank.steps]
    starts_ns = [*(step.start_ns for step in steps), *([trace.start_ns] if trace else [])]
    ends_ns = [*(step.end_ns for step in steps), *([trace.end_ns] if trace else [])]
    track = tracks.track("attempts", _HOST)
    label = f"{names.get(record.point_id, record.point_id)}, attempt {record.attempt}"
    failed = f" ({record.failure.cause})" if record.failure else ""
    tracks.slice(track, f"{label}{failed}", min(starts_ns) + offset_ns, max(ends_ns) + offset_ns)
    if not steps:
        return
    inner = tracks.track("phases of an attempt", _HOST)
    measured_ns = min(step.start_ns for step in steps)
    if record.startup_s is not None and trace is not None:
        ready_ns = min(trace.start_ns + round(record.startup_s * 1e9), measured_ns)
        tracks.slice(inner, "start-up", trace.start_ns + offset_ns, ready_ns + offset_ns)
        tracks.slice(inner, "warm-up", ready_ns + offset_ns, measured_ns + offset_ns)
    tracks.slice(inner, "measured steps", measured_ns + offset_ns, max(step.end_ns for step in steps) + offset_ns)
    for rank in record.ranks:
        own = tracks.track(f"rank {rank.header.rank}", _HOST)
        within = tracks.track(f"rank {rank.header.rank} phases", _HOST)
        for step in rank.steps:
            tracks.slice(own, f"step {step.index}", step.start_ns + offset_ns, step.end_ns + offset_ns)
            for span in step.spans:
                tracks.slice(within, span.name, span.start_ns + offset_ns, span.end_ns + offset_ns)
            start_ns, cut_ns, end_ns = phase_cuts_ns((step,))
            if start_ns < cut_ns < end_ns:
                tracks.slice(within, "prefill", start_ns + offset_ns, cut_ns + offset_ns)
                tracks.slice(within, "decode", cut_ns + offset_ns, end_ns + offset_ns)


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
            track = tracks.track(f"{name} {what}", _GPUS, unit)
            tracks.counter(track, (at_ns[known] + offset_ns).tolist(), (values[known] * factor).tolist())
    # A track of none would stand empty.
    for start_ns, end_ns, words in clock_limits(gpu, trace):
        tracks.slice(tracks.track(f"{name} clock held by", _GPUS), words, start_ns + offset_ns, end_ns + offset_ns)


def _packet(content: bytes) -> bytes:
    return _bytes(1, content + _number(10, _SEQUENCE))


def _time(time_ns: int) -> bytes:
    """When an event was. Raises ``UsageError`` for a time before 1970, or beyond 64 bits: journal or trace have it."""
    if not 0 <= time_ns < 2**64:
        raise UsageError(
            f"a time of the run lies {time_ns / 1e9:g} s from 1970, which no trace of Perfetto can have: "
            "its journal or a power trace was edited or damaged; `pybench verify` checks both"
        )
    return _number(8, time_ns)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _number(number: int, value: int) -> bytes:
    return _key(number, 0) + _varint(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _key(number, 2) + _varint(len(value)) + value


def _text(number: int, value: str) -> bytes:
    return _bytes(number, printable(value).encode("utf-8"))
