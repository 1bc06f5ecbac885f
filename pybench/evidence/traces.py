"""A record's joules and GPU states held against its power trace, and the trace's clocks against the ranks'."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime

import numpy as np

from pybench.evidence.attempts import attempt_label
from pybench.evidence.figures import differences
from pybench.evidence.values import Discrepancy
from pybench.model.manifest import Manifest
from pybench.model.record import RankReport, Record
from pybench.model.suite import Point
from pybench.power.energy.times import series_times_ns
from pybench.power.joined_energy import HostTrace, joined_conditions, joined_energy
from pybench.power.measured_window import window_ns
from pybench.power.sensor import SensorModel
from pybench.power.trace import GpuTrace, PowerTrace

# Fits are solved in another order by another build of numpy.
ENERGY_TOLERANCE = 1e-6
# The series lags its stamps, and the first sample comes a period after the start.
COVER_SLACK_S = 0.3
# A record's time has whole seconds; opening the driver takes up to ten.
_BEFORE_S, _AFTER_S = 2.0, 30.0
_EXCUSES = frozenset(("lost", "no_permission", "not_supported", "error", "stalled", "gap", "insufficient"))

Shipped = Callable[[str, str], SensorModel]
"""The sensor model for a board's name under a driver's version."""


def check_presence(manifest: Manifest, record: Record) -> Iterator[Discrepancy]:
    """Joules come with a trace; a trace is recorded wherever power could be sampled."""
    place = attempt_label(record)
    if record.trace is None and record.energy is not None:
        yield Discrepancy(place=place, text="joules without a power trace: nothing shows where they come from")
    if record.trace is None and record.ok and manifest.device == "cuda" and manifest.power_reason is None:
        yield Discrepancy(place=place, text="no power trace, though the run sampled power")
    if record.ok and record.health is None and manifest.device == "cuda" and manifest.power_reason is None:
        yield Discrepancy(place=place, text="no counts of the driver, though the run read them")
    if record.trace is not None and manifest.power_reason is not None:
        yield Discrepancy(place=place, text=f"a power trace, though the run sampled none: {manifest.power_reason}")


def check_trace(manifest: Manifest, point: Point, record: Record, hosts: Sequence[HostTrace]) -> Iterator[Discrepancy]:
    """Clocks, GPUs, cover, joules and GPU states, host by host.

    Raises whatever a malformed trace makes numpy raise.
    """
    place = attempt_label(record)
    parts = [(_ranks(record, number), host, host.trace) for number, host in enumerate(hosts) if host.trace is not None]
    for ranks, _, trace in parts:
        for text in (*_clocks(record, ranks, trace), *_gpus(manifest, ranks, trace)):
            yield Discrepancy(place=place, text=text)
    if not record.ok:
        return
    steps = [rank.steps for rank in record.ranks]
    if not steps or not all(steps):
        yield Discrepancy(place=place, text="counts as measured, but has no steps")
        return
    start_ns, end_ns = window_ns(steps)
    for _, host, trace in parts:
        for text in _cover(record, trace, start_ns + host.clock.offset_ns, end_ns + host.clock.offset_ns):
            yield Discrepancy(place=place, text=text)
    claimed = {"energy": asdict(record.energy) if record.energy else None}
    computed = {"energy": asdict(joined_energy(point, steps, hosts))}
    claimed["conditions"] = [asdict(found) for found in record.conditions]  # type: ignore[assignment]
    computed["conditions"] = [asdict(found) for found in joined_conditions(steps, hosts)]  # type: ignore[assignment]
    for where, text in differences(_plain(claimed), _plain(computed), tolerance=ENERGY_TOLERANCE):
        yield Discrepancy(place=place, text=f"{where}: {text} from the power trace")


def _ranks(record: Record, number: int) -> tuple[RankReport, ...]:
    """The ranks of host ``number``; all of them where there is one."""
    if not record.hosts:
        return record.ranks
    first, count = record.hosts[number].ranks
    return record.ranks[first : first + count]


def check_sensors(record: Record, trace: PowerTrace, shipped: Shipped) -> Iterator[Discrepancy]:
    """Joules were worked out with the sensor model that pybench has for the board, or with the user's calibration."""
    for gpu in trace.gpus:
        if gpu.sensor is not None and gpu.sensor != shipped(gpu.name, trace.driver):
            text = f"{gpu.uuid}: a sensor model of its own ({gpu.sensor.source}), not the one that pybench comes with"
            yield Discrepancy(place=attempt_label(record), text=text, state="not checked")


def _clocks(record: Record, ranks: Sequence[RankReport], trace: PowerTrace) -> Iterator[str]:
    """The boot whose CLOCK_MONOTONIC both have, and the wall clock at which both began."""
    boots = {rank.header.boot_id for rank in ranks} | ({trace.boot_id} if trace.boot_id else set())
    if len(boots) > 1:
        yield f"ranks and power trace are of different boots, their clocks cannot be joined: {', '.join(sorted(boots))}"
    if trace.end_ns <= trace.start_ns:
        yield "the power trace ends before it starts"
    offsets_ns = np.asarray(trace.offsets.realtime_offset_ns, dtype=np.int64)
    if not len(offsets_ns):
        yield "the power trace has no offset between its clocks"
        return
    try:
        began_s = datetime.fromisoformat(record.started_utc).timestamp()
    except ValueError:
        return
    late_s = (trace.start_ns + int(offsets_ns[0])) / 1e9 - began_s
    if not -_BEFORE_S <= late_s <= _AFTER_S:
        yield f"the power trace begins {abs(late_s):.0f} s {'after' if late_s > 0 else 'before'} the attempt's start"


def _gpus(manifest: Manifest, ranks: Sequence[RankReport], trace: PowerTrace) -> Iterator[str]:
    machines = (manifest.machine, *(host.machine for host in manifest.machines))
    names: Mapping[str, str] = {gpu.uuid: gpu.name for machine in machines for gpu in machine.gpus}
    traced = [gpu.uuid for gpu in trace.gpus]
    used = {uuid for rank in ranks for uuid in rank.header.all_uuids}
    if len(set(traced)) != len(traced):
        yield "the power trace has a GPU twice"
    if used and set(traced) != used:
        shown = ", ".join(sorted(traced)) or "no GPU"
        yield f"the power trace is of {shown}, the ranks ran on {', '.join(sorted(used))}"
    for gpu in trace.gpus:
        if gpu.uuid in names and gpu.name not in {"", names[gpu.uuid]}:
            yield f"{gpu.uuid} is a {gpu.name} in the power trace, a {names[gpu.uuid]} in the machine"
    if trace.driver and manifest.machine.driver and trace.driver != manifest.machine.driver:
        yield f"driver {trace.driver} in the power trace, {manifest.machine.driver} in the machine"


def _cover(record: Record, trace: PowerTrace, start_ns: int, end_ns: int) -> Iterator[str]:
    if trace.start_ns > start_ns or trace.end_ns < end_ns:
        yield "the power trace does not cover the measured steps"
        return
    excused = {gpu.uuid for gpu in record.energy.gpus if _EXCUSES & {*gpu.flags}} if record.energy else set()
    for gpu in trace.gpus:
        if gpu.uuid not in excused and not _covers(gpu, trace, start_ns, end_ns):
            yield f"{gpu.uuid}: no readings of the power trace cover the measured steps"


def _covers(gpu: GpuTrace, trace: PowerTrace, start_ns: int, end_ns: int) -> bool:
    """Whether the counter, the series or the polled average spans the window."""
    slack_ns = int(COVER_SLACK_S * 1e9)
    planes: Sequence[Sequence[int]] = (
        gpu.counter.before_ns,
        series_times_ns(gpu.series, trace.offsets),  # type: ignore[assignment]
        gpu.polled.t_ns,
    )
    spans = [(int(np.min(times)), int(np.max(times))) for times in planes if len(times)]
    return any(first <= start_ns + slack_ns and last >= end_ns - slack_ns for first, last in spans)


def _plain(value: object) -> object:
    """Values of JSON, as a journal holds them."""
    if isinstance(value, dict):
        return {name: _plain(inside) for name, inside in value.items()}
    return [_plain(inside) for inside in value] if isinstance(value, list | tuple) else value
