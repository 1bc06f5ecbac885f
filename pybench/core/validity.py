"""Whether a point may serve as a baseline, was measured alone, and did all of its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pybench.core.measurements import Measurements
from pybench.core.numbers import short_percent
from pybench.core.statistics.interval import Samples, location
from pybench.core.verdict import Judgement
from pybench.model.record import Record
from pybench.model.suite import Point
from pybench.model.workloads.generate import Generate

_MOST_UNSERVED_FRACTION = 0.005
"""Share of a step's requests that may arrive late, or fail, in a row that passes: half of the requests beyond p99."""
_PEAK_SHARES = {"mfu_fraction": "operations", "mbu_fraction": "memory bandwidth"}


def starvation(point: Point, samples: Mapping[str, Samples]) -> str | None:
    """How the key-value cache was too small for the point's requests, ``None`` when it was not.

    Speedup over such a point measures memory instead of compute: 8 GPUs look like 15 times a GPU with few sequences.
    """
    if not isinstance(point.settings, Generate):
        return None
    preemptions = _most(samples, "num_preemptions")
    if preemptions:
        return f"{preemptions:.0f} preemptions in a step for want of key-value cache"
    running, wanted, room = (_most(samples, name) for name in ("num_running", "num_runnable", "kv_cache_tokens"))
    if running is None or wanted is None or room is None or running >= wanted:
        return None
    # Short outputs can end before the last prompt begins: only a cache that lacks the room is to blame.
    if room >= wanted * point.settings.longest_sequence_tokens:
        return None
    return f"{running:.0f} of {wanted:.0f} sequences ran at a time: the key-value cache holds {room:.0f} tokens"


def company(records: Sequence[Record]) -> str | None:
    """The process of somebody else that was on a GPU while steps were measured; ``None`` where none was seen."""
    for record in records:
        steps = [step for rank in record.ranks for step in rank.steps]
        if record.health is None or not steps:
            continue
        start_ns, end_ns = min(step.start_ns for step in steps), max(step.end_ns for step in steps)
        for process in record.health.others:
            if process.first_ns <= end_ns and process.last_ns >= start_ns:
                return f"process {process} was on a GPU in a measured step"
    return None


def mixed_software(records: Sequence[Record]) -> str | None:
    """The package that attempts of one point ran in several versions, as after an update during a run."""
    versions: dict[str, set[str]] = {}
    for header in (rank.header for record in records for rank in record.ranks):
        for name, version in {"Python": header.python, **header.packages}.items():
            versions.setdefault(name, set()).add(version)
    mixed = next((name for name, known in versions.items() if len(known) > 1), None)
    return mixed and f"attempts ran with {mixed} {' and '.join(sorted(versions[mixed]))}"


def excess(samples: Mapping[str, Samples]) -> str | None:
    """The share of its GPUs' peak that a point exceeds, ``None`` where it exceeds none.

    Then a part of the counted work was not done, or the GPU's name is wrong.
    """
    for name, resource in _PEAK_SHARES.items():
        if name in samples and (share := location(samples[name])) > 1:
            return f"{short_percent(share)} of the GPUs' peak {resource}, which no work reaches ({name})"
    return None


def unserved(samples: Mapping[str, Samples]) -> str | None:
    """The share of a step's requests that were sent late, or that a server failed; ``None`` where it is small.

    Late arrivals hide how long requests would have waited (coordinated omission, G. Tene).
    """
    names = ("late_arrival_fraction", "num_failed_requests", "requests_per_s", "step_s")
    late, failed, rate, length_s = (_most(samples, name) or 0.0 for name in names)
    if late > _MOST_UNSERVED_FRACTION:
        return f"{short_percent(late)} of arrivals were sent late: give the load generator a core, or lower the rate"
    if failed > _MOST_UNSERVED_FRACTION * (rate * length_s + failed):
        return f"the server failed {failed:.0f} requests of a step"
    return None


@dataclass(frozen=True)
class VerdictFlag:
    """A flag that spoils a pass: its ``meaning``, and ``problem``, which returns a point's reason or ``None``."""

    meaning: str
    problem: Callable[[Mapping[str, Samples]], str | None]


VERDICT_FLAGS = {
    "beyond_peak": VerdictFlag(
        "more operations or bytes a second than the GPUs can do: a part of the work was left out", excess
    ),
    "late_load": VerdictFlag(
        "more than 0.5 % of a step's requests were sent late by the load generator, or failed by the server", unserved
    ),
}
"""Flags of points that did not do all of their work. A new flag takes its line here and its function above."""


def valid_ratio(judgement: Judgement, measurements: Measurements, points: Sequence[Point]) -> Judgement:
    """A pass of a ratio becomes inconclusive if another process ran, or a point skipped work."""
    beside = next((words for point in points if (words := company(measurements.good(point.id)))), None)
    if beside is not None:
        judgement = _not_passed(judgement, f"{beside}: end it and measure again", "not_alone")
    return valid_figure(judgement, measurements, points)


def valid_figure(judgement: Judgement, measurements: Measurements, points: Sequence[Point]) -> Judgement:
    """A pass becomes inconclusive if a point skipped work, or its attempts ran different software.

    Another process only adds time and joules: a figure within its limit stays within it without that process.
    """
    mixed = next((words for point in points if (words := mixed_software(measurements.good(point.id)))), None)
    if mixed is not None:
        judgement = _not_passed(judgement, f"{mixed}: measure again with one", "mixed_software")
    for flag, traits in VERDICT_FLAGS.items():
        words = next((words for point in points if (words := traits.problem(measurements.samples(point)))), None)
        if words is not None:
            judgement = _not_passed(judgement, words, flag)
    return judgement


def _not_passed(judgement: Judgement, why: str, flag: str) -> Judgement:
    verdict, reason, flags, decision = judgement
    if verdict == "pass":
        return Judgement("inconclusive", f"{why}; {reason}", (*flags, flag))
    return Judgement(verdict, reason, (*flags, flag), decision)


def _most(samples: Mapping[str, Samples], name: str) -> float | None:
    return max((value for attempt in samples.get(name, ()) for value in attempt), default=None)
