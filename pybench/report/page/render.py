"""A run's page: verdict, scaling, points, node, power, steps, provenance."""

from __future__ import annotations

import re
from statistics import median
from typing import Any

from pybench.core.joint_step import phase_cuts_ns
from pybench.core.numbers import plain
from pybench.model.errors import PybenchError
from pybench.model.record import gpu_label
from pybench.model.results import Results
from pybench.power.chart import PowerPayload, power_samples, trace_chart
from pybench.report.page.charts import scaling_charts, step_chart, throughput_charts
from pybench.report.page.document import document, verdict_rank
from pybench.report.run.findings import by_part, each_step_once, findings, judged_sentence, not_judged, not_run
from pybench.report.run.flags import legend, relevant
from pybench.report.run.more_attempts import decided_sentence
from pybench.report.run.rows import comparisons, gpu_names, point_table, tables
from pybench.report.run.view import RunView, changes, sentence
from pybench.report.run.work import job_table
from pybench.report.text.labels import short_labels

MOST_SAMPLES = 10_000_000
"""Samples on one page, all attempts together; traces beyond that are only named."""
_UNKNOWN: tuple[object, ...] = (None, "", (), {})
_LINK = re.compile(r"link_to_(\d+)_bytes_per_s")
_BYTES_PER_GB = 1e9
_HZ_PER_MHZ = 1e6
_BAD = ("fail", "error")


def render(view: RunView) -> str:
    """One HTML file with everything that is known of a run."""
    results = view.results
    names = short_labels(results.points, with_benchmark=True)
    flags = [flag for point in results.points for flag in relevant(point)]
    flags += [flag for record in view.good_records if record.energy for gpu in record.energy.gpus for flag in gpu.flags]
    shown = ("Points", "Scaling")
    provenance = {"run": results.run_id, "profile": results.profile or "none"}
    provenance |= {"machine": results.machine, "fingerprint": results.fingerprint}
    known = {name: value for name, value in vars(results.provenance).items() if value not in _UNKNOWN}
    provenance |= {name.replace("_", " "): _words(value) for name, value in known.items()}
    points = point_table(results, names).without_empty_columns()
    return document(
        "run.html.j2",
        power=power_payload(view),
        view=view,
        results=results,
        judged="; ".join(filter(None, (decided_sentence(view), judged_sentence(results)))),
        findings=by_part(each_step_once(findings(view))),
        not_judged=by_part(not_judged(view)),
        not_run=by_part(not_run(results)),
        points=points,
        verdicts=sorted(set(points.verdicts), key=verdict_rank),
        charts=(*scaling_charts(results), *throughput_charts(results)),
        comparisons=comparisons(results, names),
        jobs=job_table(results, names).without_empty_columns(),
        steps=step_chart(view),
        attempt_energy=_attempt_energy(view, names),
        power_reason=view.manifest.power_reason if view.manifest else None,
        cards=_gpu_cards(results),
        matrix=_link_matrix(view),
        flag_legend=legend(flags),
        details=[table for table in tables(results, names) if not table.title.startswith(shown)],
        provenance=provenance.items(),
        changed=changes(results.options),
        sentence=sentence(results.provenance, detail=False, where="listed below"),
    )


def _attempt_energy(view: RunView, names: dict[str, str]) -> list[tuple[str, ...]]:
    """The figures behind the power chart: joules with the sensor's bound and watts of each attempt and GPU."""
    return [
        (
            names.get(record.point_id, record.point_id),
            str(record.attempt),
            gpu_label(gpu.uuid, gpu.index),
            "-" if gpu.energy_j is None else f"{gpu.energy_j:.1f} J",
            "-" if None in (low_j := gpu.energy_low_j, high_j := gpu.energy_high_j) else f"[{low_j:.1f}, {high_j:.1f}]",
            "-" if gpu.mean_power_w is None else f"{gpu.mean_power_w:.0f} W",
            "-" if gpu.max_power_w is None else f"{gpu.max_power_w:.0f} W",
            ", ".join(gpu.flags),
        )
        for record in view.good_records
        for gpu in (record.energy.gpus if record.energy else ())
    ]


def _words(value: object, separator: str = "\n") -> str:
    """One line for each entry; a number 0 or a mode that is off is known."""
    if isinstance(value, dict):
        return separator.join(f"{name} {text}" for name, text in value.items())
    if isinstance(value, (list, tuple)):
        return separator.join(_words(entry, ", ") for entry in value)
    if hasattr(value, "__dataclass_fields__"):
        known = ((name, text) for name, text in vars(value).items() if text not in _UNKNOWN)
        return "; ".join(f"{name.replace('_', ' ')}: {_words(text, ', ')}" for name, text in known)
    return str(value)


def power_payload(view: RunView) -> PowerPayload:
    """The traces of all good attempts in the order of recording, up to ``MOST_SAMPLES``."""
    names = short_labels(view.results.points, with_benchmark=True)
    attempts: list[dict[str, Any]] = []
    notes: list[str] = []
    room = MOST_SAMPLES
    # Each attempt on the run's own host, ``None``, then on every other host with a trace.
    for record, part in [(each, part) for each in view.good_records for part in (None, *view.other_hosts(each))]:
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
        # Start, end of prefill and end of every measured step over all ranks, on this host's clock.
        steps = [phase_cuts_ns(ranks) for ranks in zip(*(rank.steps for rank in record.ranks), strict=True)]
        shifted = [(start + ahead_ns, cut + ahead_ns, end + ahead_ns) for start, cut, end in steps]
        attempts.append(trace_chart(label, shifted, "measured step", trace))
    return PowerPayload.of(attempts, notes)


def _gpu_cards(results: Results) -> list[dict[str, Any]]:
    """Every GPU that a point used, with its highest temperature and lowest clock under load, and failed checks."""
    cards = []
    for uuid, name in gpu_names(results).items() if results.node else ():
        states = [state for point in results.points for state in point.gpu_states if state.uuid == uuid]
        warm = [state.temperature_c for state in states if state.temperature_c is not None]
        clocks = [state.sm_clock_hz for state in states if state.sm_clock_hz is not None]
        held = dict.fromkeys(word for state in states for word in state.held_by or ())
        facts = (
            *((f"up to {max(warm):.0f} °C",) if warm else ()),
            *((f"{min(clocks) / _HZ_PER_MHZ:,.0f} to {max(clocks) / _HZ_PER_MHZ:,.0f} MHz",) if clocks else ()),
            *((f"held by {', '.join(held)}",) if held else ()),
        )
        pattern = re.compile(rf"(^|\W)({re.escape(name)}|{re.escape(uuid)})(\W|$)")
        bad = [check for check in results.node if check.verdict in _BAD and pattern.search(check.subject)]
        faults = [f"{check.name}: {check.reason}" for check in bad]
        cards.append({"name": name, "uuid": uuid, "facts": facts, "faults": faults})
    return cards


def _link_matrix(view: RunView) -> dict[str, Any] | None:
    """The median speed in GB/s of every link over the attempts; ``None`` where no point measured links.

    Rows are senders, columns receivers; the level of a speed is from 0, the slowest, to 9, the fastest.
    """
    measured: dict[tuple[int, int], list[float]] = {}
    for record in view.good_records:
        for sender, rank in enumerate(record.ranks):
            values = [(m.name, m.value) for m in rank.metrics] + [v for s in rank.steps for v in s.values.items()]
            for name, value in values:
                if matched := _LINK.fullmatch(name):
                    measured.setdefault((sender, int(matched[1])), []).append(value)
    if not measured:
        return None
    speeds = {pair: median(values) for pair, values in measured.items()}
    size = 1 + max(max(pair) for pair in speeds)
    slowest, fastest = min(speeds.values()), max(speeds.values())
    # Reasons of links that failed, by the numbers of sender and receiver.
    faults = {}
    for check in view.results.node:
        numbers = re.findall(r"(?:GPU|rank) (\d+)", check.subject)
        if check.name == "link" and check.verdict in _BAD and len(numbers) == 2:  # noqa: PLR2004 - a link has two ends
            faults[int(numbers[0]), int(numbers[1])] = check.reason

    def cell(link: tuple[int, int]) -> dict[str, Any]:
        if (speed := speeds.get(link)) is None:
            return {"text": "", "level": None, "fault": None}
        level = 9 if fastest == slowest else round(9 * (speed - slowest) / (fastest - slowest))
        return {"text": plain(speed / _BYTES_PER_GB), "level": level, "fault": faults.get(link)}

    names = [f"GPU {number}" for number in range(size)]
    return {"names": names, "rows": [[cell((a, b)) for b in range(size)] for a in range(size)]}
