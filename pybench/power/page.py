"""Power over time for the page: every attempt's trace with its steps, phases, clock limits and counter readings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pybench.core.phases import phase_cuts_ns
from pybench.model.errors import PybenchError
from pybench.model.gpu_state import gpu_label
from pybench.model.host import HostPart
from pybench.model.record import Record
from pybench.power.page_codec import Integers, extremes, pack, pack_levels
from pybench.power.report.gpu_trace import clock_limits, power_samples
from pybench.power.trace import GpuTrace, PowerTrace
from pybench.report.run.view import RunView
from pybench.report.text.labels import short_labels

TICK_NS = 100_000
"""Times of the page are counted in tenths of a millisecond, of a trace of days in as many as 32 bits need."""
MOST_SAMPLES = 10_000_000
"""A page holds traces up to so many samples; the others are named."""
_COARSE_FROM = 100_000
_COARSE_BUCKETS = 2000


@dataclass(frozen=True)
class PowerPayload:
    """``attempts`` for the script, and a sentence for each attempt whose trace is not in the page.

    ``columns`` are the samples of long traces by the id that an attempt names: the page draws from a coarse view before
    it has read them.
    """

    attempts: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    columns: dict[str, dict[str, Any]]


NO_POWER = PowerPayload((), (), {})
"""Of a page without a power chart."""


def power_payload(view: RunView) -> PowerPayload:
    """The traces of all good attempts, in the order they were recorded, as far as the page has room."""
    names = short_labels(view.results.points, with_benchmark=True)
    attempts: list[dict[str, Any]] = []
    notes: list[str] = []
    columns: dict[str, dict[str, Any]] = {}
    room = MOST_SAMPLES
    for record, part in _traced(view):
        label = f"{names.get(record.point_id, record.point_id)}, attempt {record.attempt}"
        label += f", host {part.name}" if part is not None else ""
        try:
            trace = view.trace((part or record).trace)
        except PybenchError as error:
            notes.append(f"{label}: {error}")
            continue
        if trace is None:
            continue
        samples = _samples(trace)
        size = sum(len(times_ns) for times_ns, _ in samples)
        if not size:
            continue
        if size > room:
            notes.append(f"{label}: {size:,} samples are left out; pybench report --format perfetto holds every trace")
            continue
        room -= size
        ahead_ns = 0 if part is None else part.clock.offset_ns
        attempts.append(_attempt(label, _joint(record, ahead_ns), "measured step", trace, samples))
        columns |= _set_apart(attempts[-1], len(columns))
    return PowerPayload(tuple(attempts), tuple(notes), columns)


def _traced(view: RunView) -> Iterator[tuple[Record, HostPart | None]]:
    """Each good attempt on the run's own host, ``None``, then on every other host with a trace."""
    for record in view.good_records:
        yield record, None
        yield from ((record, part) for part in view.other_hosts(record))


def command_payload(label: str, trace: PowerTrace, start_ns: int, end_ns: int) -> PowerPayload:
    """The trace of one command, which ran from ``start_ns`` to ``end_ns``."""
    attempt = _attempt(label, [(start_ns, start_ns, end_ns)], "command", trace, _samples(trace))
    return PowerPayload((attempt,), (), _set_apart(attempt, 0))


def _set_apart(attempt: dict[str, Any], taken: int) -> dict[str, dict[str, Any]]:
    """Take the samples of long traces out of an attempt, which names them from then on."""
    columns: dict[str, dict[str, Any]] = {}
    for gpu in attempt["gpus"]:
        if "coarse_t" in gpu:
            gpu["columns"] = f"power-{taken + len(columns)}"
            columns[gpu["columns"]] = {name: gpu.pop(name) for name in ("t", "mw", "anchors")}
    return columns


def _samples(trace: PowerTrace) -> list[tuple[Integers, Integers]]:
    """Of each GPU, as :func:`power_samples` has them."""
    return [power_samples(gpu, trace) for gpu in trace.gpus]


def _attempt(
    label: str,
    steps: Sequence[tuple[int, int, int]],
    span: str,
    trace: PowerTrace,
    samples: Sequence[tuple[Integers, Integers]],
) -> dict[str, Any]:
    """``steps`` are start, end of prefill and end of each; ``span`` is what they are called."""
    anchors_ns = [_anchors_ns(gpu) for gpu in trace.gpus]
    origin_ns = trace.start_ns
    tick_ns = _tick_ns(origin_ns, [*anchors_ns, *(times_ns for times_ns, _ in samples)])

    def ticks(time_ns: int) -> int:
        return (time_ns - origin_ns) // tick_ns

    return {
        "label": label,
        "span": span,
        "tick_s": tick_ns / 1e9,
        "end": ticks(trace.end_ns),
        "gpus": [
            _gpu(gpu, trace, own, anchors, tick_ns)
            for gpu, own, anchors in zip(trace.gpus, samples, anchors_ns, strict=True)
        ],
        "steps": [[ticks(start), ticks(end)] for start, _, end in steps],
        "phases": [
            [name, ticks(a), ticks(b)]
            for start, cut, end in steps
            if start < cut < end
            for name, a, b in (("prefill", start, cut), ("decode", cut, end))
        ],
    }


def _tick_ns(origin_ns: int, columns: Sequence[Integers]) -> int:
    """A recording of days keeps what lies near its marks: two neighbours may be as far apart as its ends.

    A column whose times go back, as in a file that was edited, may have its ends anywhere.
    """
    ends_ns = [int(time_ns) for column in columns if len(column) for time_ns in (column.min(), column.max())]
    reach_ns = max([origin_ns, *ends_ns]) - min([origin_ns, *ends_ns])
    return TICK_NS * (1 + reach_ns // (TICK_NS * (2**31 - 1)))


def _gpu(
    gpu: GpuTrace, trace: PowerTrace, samples: tuple[Integers, Integers], anchors_ns: Integers, tick_ns: int
) -> dict[str, Any]:
    origin_ns = trace.start_ns
    times_ns, power_mw = samples
    ticks = (times_ns - origin_ns) // tick_ns
    found: dict[str, Any] = {
        "name": gpu_label(gpu.uuid, gpu.index),
        "t": pack(ticks),
        "mw": pack_levels(power_mw),
        "limits": [
            [(a - origin_ns) // tick_ns, (b - origin_ns) // tick_ns, word] for a, b, word in clock_limits(gpu, trace)
        ],
        "anchors": pack((anchors_ns - origin_ns) // tick_ns),
    }
    if len(ticks) > _COARSE_FROM:
        coarse_ticks, coarse_mw = extremes(ticks, power_mw, _COARSE_BUCKETS)
        found |= {"coarse_t": pack(coarse_ticks), "coarse_mw": pack_levels(coarse_mw)}
    return found


def _anchors_ns(gpu: GpuTrace) -> Integers:
    """When the energy counter showed a new value."""
    energy_mj = np.asarray(gpu.counter.energy_mj, dtype=np.uint64)
    after_ns = np.asarray(gpu.counter.after_ns, dtype=np.int64)
    if not len(energy_mj):
        return after_ns
    changed: Integers = after_ns[np.append(True, energy_mj[1:] != energy_mj[:-1])]
    return changed


def _joint(record: Record, ahead_ns: int) -> list[tuple[int, int, int]]:
    """Start, end of prefill and end of every measured step over all ranks, as :func:`phase_cuts_ns` has them.

    On a clock that is ``ahead_ns`` ahead of that of the host that leads.
    """
    together = zip(*(rank.steps for rank in record.ranks), strict=True)
    spans = (phase_cuts_ns(ranks) for ranks in together)
    return [(start + ahead_ns, cut + ahead_ns, end + ahead_ns) for start, cut, end in spans]
