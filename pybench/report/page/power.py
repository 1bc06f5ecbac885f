"""The power charts of a run's page: one for each attempt with a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pybench.core.formulas.joint_step import phase_cuts_ns
from pybench.model.errors import PybenchError
from pybench.model.host import HostPart
from pybench.model.record import Record
from pybench.power.chart import PowerPayload, detach_columns, power_samples, trace_chart
from pybench.report.run.view import RunView
from pybench.report.text.labels import short_labels

MOST_SAMPLES = 10_000_000
"""Samples on one page, all attempts together; traces beyond that are only named."""


def power_payload(view: RunView) -> PowerPayload:
    """The traces of all good attempts in the order of recording, up to ``MOST_SAMPLES``."""
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
        size = 0 if trace is None else sum(len(power_samples(gpu, trace)[0]) for gpu in trace.gpus)
        if trace is None or not size:
            continue
        if size > room:
            notes.append(f"{label}: {size:,} samples are left out; pybench report --format perfetto holds every trace")
            continue
        room -= size
        ahead_ns = 0 if part is None else part.clock.offset_ns
        attempts.append(trace_chart(label, _joint_steps(record, ahead_ns), "measured step", trace))
        columns |= detach_columns(attempts[-1], len(columns))
    return PowerPayload(tuple(attempts), tuple(notes), columns)


def _traced(view: RunView) -> Iterator[tuple[Record, HostPart | None]]:
    """Each good attempt on the run's own host, ``None``, then on every other host with a trace."""
    for record in view.good_records:
        yield record, None
        yield from ((record, part) for part in view.other_hosts(record))


def _joint_steps(record: Record, ahead_ns: int) -> list[tuple[int, int, int]]:
    """Start, end of prefill and end of every measured step over all ranks.

    Times are on a clock ``ahead_ns`` ahead of the leading host's.
    """
    together = zip(*(rank.steps for rank in record.ranks), strict=True)
    spans = (phase_cuts_ns(ranks) for ranks in together)
    return [(start + ahead_ns, cut + ahead_ns, end + ahead_ns) for start, cut, end in spans]
