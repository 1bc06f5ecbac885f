"""Power over time as charts draw it: samples of a trace, clock limits, and columns packed for a page."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pybench.core.node_driver import event_words
from pybench.model.record import gpu_label
from pybench.power.samples import IMPOSSIBLE_W, polled_power_mw, series_times_ns
from pybench.power.trace import MISSING, GpuTrace, PowerTrace

Integers = npt.NDArray[np.int64]

TICK_NS = 100_000
"""Unit of time on a page. Traces longer than 2^31 ticks use a multiple of it."""
_COARSE_FROM = 100_000
"""Longer columns get a coarse view, which the page draws first."""
_COARSE_BUCKETS = 2000


@dataclass(frozen=True)
class PowerPayload:
    """Data of a page's power charts.

    ``attempts`` has one entry for each chart, ``notes`` one sentence for each trace left out. ``columns`` holds the
    samples of long traces under the id that an attempt names in ``columns``.
    """

    attempts: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, attempts: Sequence[dict[str, Any]], notes: Sequence[str] = ()) -> Self:
        """Move the samples of long traces out of the charts, which keep their ids ``power-<number>``."""
        columns: dict[str, dict[str, Any]] = {}
        for gpu in (gpu for attempt in attempts for gpu in attempt["gpus"] if "coarse_t" in gpu):
            gpu["columns"] = f"power-{len(columns)}"
            columns[gpu["columns"]] = {name: gpu.pop(name) for name in ("t", "mw", "anchors")}
        return cls(tuple(attempts), tuple(notes), columns)


def power_samples(gpu: GpuTrace, trace: PowerTrace) -> tuple[Integers, Integers]:
    """Times in ns of CLOCK_MONOTONIC, ascending, and power in mW.

    The driver's series, else the polled power. Readings above 10 kW are driver errors and are left out.
    """
    if len(gpu.series.power_mw):
        times_ns, power_mw = series_times_ns(gpu.series, trace.offsets), np.asarray(gpu.series.power_mw, np.int64)
    else:
        times_ns, power_mw = np.asarray(gpu.polled.t_ns, np.int64), polled_power_mw(gpu.polled)
    known = (power_mw != MISSING) & (power_mw <= IMPOSSIBLE_W * 1e3)
    order = np.argsort(times_ns[known], kind="stable")
    return times_ns[known][order], power_mw[known][order]


def clock_limits(gpu: GpuTrace, trace: PowerTrace) -> list[tuple[int, int, str]]:
    """Start, end and reason of each span with a limited clock, from one reading to the next."""
    times_ns = [*(int(t) for t in gpu.slow.t_ns), trace.end_ns]
    spans: list[tuple[int, int, str]] = []
    for place, reasons in enumerate(gpu.slow.clock_event_reasons):
        words = ", ".join(event_words(int(reasons))) if int(reasons) != MISSING else ""
        if words and spans and spans[-1][1:] == (times_ns[place], words):
            spans[-1] = (spans[-1][0], times_ns[place + 1], words)
        elif words:
            spans.append((times_ns[place], times_ns[place + 1], words))
    return spans


def trace_chart(label: str, steps: Sequence[tuple[int, int, int]], span: str, trace: PowerTrace) -> dict[str, Any]:
    """One chart. ``steps`` are start, end of prefill and end of each in ns; ``span`` is the word for a step."""
    samples = [power_samples(gpu, trace) for gpu in trace.gpus]
    counter_ns: list[Integers] = []  # of each new value
    for gpu in trace.gpus:
        energy_mj, after_ns = np.asarray(gpu.counter.energy_mj, np.uint64), np.asarray(gpu.counter.after_ns, np.int64)
        counter_ns.append(after_ns[np.append(True, energy_mj[1:] != energy_mj[:-1])[: len(energy_mj)]])
    origin_ns = trace.start_ns
    # The shortest multiple of TICK_NS that fits every difference into 32 bits. The times of an edited file may
    # descend, so the range counts, not the ends.
    columns = [column for column in (*counter_ns, *(times_ns for times_ns, _ in samples)) if len(column)]
    ends_ns = [origin_ns, *(int(end_ns) for column in columns for end_ns in (column.min(), column.max()))]
    tick_ns = TICK_NS * (1 + (max(ends_ns) - min(ends_ns)) // (TICK_NS * (2**31 - 1)))

    def ticks(time_ns: Any) -> Any:  # noqa: ANN401 - a number or a column
        return (time_ns - origin_ns) // tick_ns

    gpus: list[dict[str, Any]] = []
    for gpu, (times_ns, power_mw), new_values_ns in zip(trace.gpus, samples, counter_ns, strict=True):
        chart: dict[str, Any] = {
            "name": gpu_label(gpu.uuid, gpu.index),
            "t": pack(ticks(times_ns)),
            "mw": pack_levels(power_mw),
            "limits": [[ticks(a), ticks(b), word] for a, b, word in clock_limits(gpu, trace)],
            "anchors": pack(ticks(new_values_ns)),
        }
        if len(times_ns) > _COARSE_FROM:
            coarse_ticks, coarse_mw = extremes(ticks(times_ns), power_mw, _COARSE_BUCKETS)
            chart |= {"coarse_t": pack(coarse_ticks), "coarse_mw": pack_levels(coarse_mw)}
        gpus.append(chart)
    return {
        "label": label,
        "span": span,
        "tick_s": tick_ns / 1e9,
        "end": ticks(trace.end_ns),
        "gpus": gpus,
        "steps": [[ticks(start), ticks(end)] for start, _, end in steps],
        "phases": [
            [name, ticks(a), ticks(b)]
            for start, cut, end in steps
            if start < cut < end
            for name, a, b in (("prefill", start, cut), ("decode", cut, end))
        ],
    }


def pack(values: Integers) -> str:
    """``values`` as text: differences, bytes grouped by weight, gzip, base64.

    Raises ``ValueError`` when a difference needs more than 32 bits.
    """
    differences = np.diff(values, prepend=np.int64(0))
    if len(differences) and np.abs(differences).max() >= 2**31:
        raise ValueError("two neighbouring values differ by more than 32 bits hold")
    planes = differences.astype("<i4").view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(gzip.compress(planes.tobytes(), compresslevel=6, mtime=0)).decode("ascii")


def pack_levels(values: Integers) -> dict[str, str]:
    """``values`` as their sorted distinct levels and the rank of each.

    A sensor reports multiples of its resolution, so ranks compress better than values.
    """
    levels, ranks = np.unique(values, return_inverse=True)
    return {"levels": pack(levels), "ranks": pack(ranks.astype(np.int64))}


def extremes(times: Integers, values: Integers, num_buckets: int) -> tuple[Integers, Integers]:
    """Times and values of the minimum and maximum in each of ``num_buckets`` equal spans of time, in order of time."""
    if len(values) <= 2 * num_buckets:
        return times, values
    span = max(int(times[-1] - times[0]), 1)
    bucket = np.minimum((times - times[0]) * num_buckets // (span + 1), num_buckets - 1)
    starts = np.flatnonzero(np.diff(bucket, prepend=np.int64(-1)))
    ends = np.append(starts[1:], len(values))
    kept = np.array(
        [(a + int(np.argmin(values[a:b])), a + int(np.argmax(values[a:b]))) for a, b in zip(starts, ends, strict=True)]
    )
    places = np.unique(kept)
    return times[places], values[places]
