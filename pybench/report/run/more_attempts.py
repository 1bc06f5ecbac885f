"""How many attempts would decide everything that is undecided: as a next step, and their time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from statistics import fmean, median

from pybench.core.measurements import grouped
from pybench.core.schedule import pending
from pybench.model.results import JudgedRow, Results
from pybench.model.text import rough_time
from pybench.report.run.view import RunView

_OPTION = "--attempts"


@dataclass(frozen=True)
class MoreAttempts:
    """The most attempts that any undecided row of a benchmark needs, by the benchmark's name.

    ``by_option``: ``--attempts`` gave every point its attempts, so that one number holds for the whole run. ``aliased``
    points keep the power sensor's rhythm.
    """

    needed: Mapping[str, int]
    benchmarks: Mapping[str, str]
    by_option: bool
    aliased: AbstractSet[str]

    @classmethod
    def of(cls, results: Results) -> MoreAttempts:
        """Of every inconclusive row and check whose figures name a number."""
        benchmarks = {point.id: point.benchmark for point in results.points}
        needed: dict[str, int] = {}
        for row in results.rows:
            attempts = row.decision.attempts_to_decide if row.decision else None
            if row.verdict == "inconclusive" and attempts is not None:
                name = benchmarks.get(row.point_id or "", "")
                needed[name] = max(attempts, needed.get(name, 0))
        aliased = {point.id for point in results.points if "alias_risk" in point.flags}
        return cls(needed, benchmarks, any(option.startswith(_OPTION) for option in results.options), aliased)

    def step(self, row: JudgedRow) -> str:
        """The next step for an inconclusive row, by the number of attempts that its figures predict."""
        decision = row.decision
        if decision is None:
            return "raise max_attempts of the benchmark: more attempts narrow the interval"
        if decision.is_final:
            is_aliased = not self.aliased.isdisjoint(row.point_ids)
            way = "dither avoids aliasing, --set dither_ms=20;" if is_aliased else "compare ratios on the same boards,"
            return f"more attempts do not decide it: {way} or move the limit"
        needs_more = decision.attempts_to_decide or decision.is_of_one_attempt
        if self.by_option and needs_more and self.needed:
            return f"measure more attempts: {_OPTION} {max(self.needed.values())}"
        if decision.is_of_one_attempt:
            return f"measure two attempts or more: {_OPTION} 2, or attempts of the benchmark"
        if decision.attempts_to_decide is None:
            return "the figure lies too near its limit: find what holds it back, or move the limit"
        name = self.benchmarks.get(row.point_id or "", "")
        return f"allow more attempts: --set {f'benchmark.{name}.' if name else ''}max_attempts={self.needed[name]}"


def decided_sentence(view: RunView) -> str | None:
    """For instance ``decided 14 of 18 in 6.7 min; the rest needs about 3.0 min``.

    ``None`` without a time limit, and where nothing is undecided. The rest are owed
    attempts and further attempts for inconclusive rows. Each takes as long as the others at its point, or on average.
    """
    counts = view.results.counts
    num_decided, num_open = counts.passed + counts.failed, counts.inconclusive + counts.missing
    if view.manifest is None or view.manifest.options.time_limit_s is None or not num_open or not view.records:
        return None
    took_s = grouped((record.point_id, record.duration_s) for record in view.records)
    whole_s = sum(map(sum, took_s.values()))
    needed = Counter(point.id for point, _ in pending(view.manifest.plan.points, view.records))
    for row in view.results.rows:
        attempts = row.decision.attempts_to_decide if row.decision and row.verdict == "inconclusive" else None
        for id_ in row.point_ids if attempts else ():
            needed[id_] = max(needed[id_], (attempts or 0) - len(took_s.get(id_, ())))
    mean_s = fmean(median(values) for values in took_s.values())
    rest_s = sum(number * median(took_s.get(id_, [mean_s])) for id_, number in needed.items())
    rest = f"; the rest needs about {rough_time(rest_s)}" if rest_s else ""
    return f"decided {num_decided} of {num_decided + num_open} in {rough_time(whole_s)}{rest}"
