"""Whether a point may serve as a baseline, was measured alone, and did all of its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pybench.core.measurements import Measurements
from pybench.core.numbers import short_percent
from pybench.core.provenance import package_versions
from pybench.core.statistics.interval import Interval, NoRatioError, Samples, location
from pybench.core.verdict import Judgement, RowStatistics, row_statistics
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


def company(records: Sequence[Record], _samples: Mapping[str, Samples]) -> str | None:
    """The process of somebody else that was on a GPU while steps were measured; ``None`` where none was seen."""
    for record in records:
        steps = [step for rank in record.ranks for step in rank.steps]
        if record.health is None or not steps:
            continue
        start_ns, end_ns = min(step.start_ns for step in steps), max(step.end_ns for step in steps)
        for process in record.health.others:
            if process.first_ns <= end_ns and process.last_ns >= start_ns:
                return f"process {process} was on a GPU in a measured step: end it and measure again"
    return None


def mixed_software(records: Sequence[Record], _samples: Mapping[str, Samples]) -> str | None:
    """The package that attempts of one point ran in several versions, as after an update during a run."""
    mixed = next((each for each in package_versions(records).items() if len(each[1]) > 1), None)
    if mixed is None:
        return None
    name = "Python" if mixed[0] == "python" else mixed[0]
    return f"attempts ran with {name} {' and '.join(sorted(mixed[1]))}: measure again with one"


def excess(_records: Sequence[Record], samples: Mapping[str, Samples]) -> str | None:
    """The share of its GPUs' peak that a point exceeds, ``None`` where it exceeds none.

    Then a part of the counted work was not done, or the GPU's name is wrong.
    """
    for name, resource in _PEAK_SHARES.items():
        if name in samples and (share := location(samples[name])) > 1:
            return f"{short_percent(share)} of the GPUs' peak {resource}, which no work reaches ({name})"
    return None


def unserved(_records: Sequence[Record], samples: Mapping[str, Samples]) -> str | None:
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
    """A flag that spoils a pass: its ``meaning``, and ``problem``, which returns a point's reason or ``None``.

    A flag ``of_ratios`` spoils no pass of a figure.
    """

    meaning: str
    problem: Callable[[Sequence[Record], Mapping[str, Samples]], str | None]
    of_ratios: bool = False


VERDICT_FLAGS = {
    # Another process only adds time and joules: a figure within its limit stays within it without that process.
    "not_alone": VerdictFlag(
        "a process of somebody else was on a GPU while steps were measured", company, of_ratios=True
    ),
    "mixed_software": VerdictFlag(
        "attempts ran with different versions of Python or of a package: no row over the point passes",
        mixed_software,
    ),
    "beyond_peak": VerdictFlag(
        "more operations or bytes a second than the GPUs can do: a part of the work was left out", excess
    ),
    "late_load": VerdictFlag(
        "more than 0.5 % of a step's requests were sent late by the load generator, or failed by the server", unserved
    ),
}
"""Flags of points that rows may not pass over. A new flag takes its line here and its function above."""


def judged_points(
    measurements: Measurements,
    metric: str,
    points: Sequence[Point],
    base: str,
    judge: Callable[[RowStatistics], Judgement],
) -> tuple[Interval | None, Judgement]:
    """The ratio of a point to its ``base``, and its verdict; no interval where a value of zero or below has no ratio.

    ``points`` are the point and its base; two more, the first of an axis, make it the change of this ratio.
    """
    try:
        evidence = row_statistics(measurements, metric, points[::3], points[1:3])
    except NoRatioError as error:
        return None, Judgement("inconclusive", str(error), ("no_ratio",))
    for other in points[1::2]:
        if (starved := starvation(other, measurements.samples(other))) is not None:
            return evidence.interval, Judgement("inconclusive", f"no valid {base}: {starved}", ("starved_baseline",))
    return evidence.interval, validated(judge(evidence), measurements, points)


def validated(
    judgement: Judgement, measurements: Measurements, points: Sequence[Point], *, is_ratio: bool = True
) -> Judgement:
    """A pass becomes inconclusive where a point has a flag of :data:`VERDICT_FLAGS`."""
    verdict, reason, flags, decision = judgement
    for flag, traits in VERDICT_FLAGS.items():
        both = ((measurements.good(point.id), measurements.samples(point)) for point in points)
        words = next((words for of_point in both if (words := traits.problem(*of_point))), None)
        if words is None or (traits.of_ratios and not is_ratio):
            continue
        flags = (*flags, flag)
        if verdict == "pass":
            verdict, reason, decision = "inconclusive", f"{words}; {reason}", None
    return Judgement(verdict, reason, flags, decision)


def _most(samples: Mapping[str, Samples], name: str) -> float | None:
    return max((value for attempt in samples.get(name, ()) for value in attempt), default=None)
