"""How a row is decided: its statistics, the level of a look, the words of its verdict.

A row is a figure, or a ratio of figures, against a limit. Attempts are added until it is decided, and looking again
after each gives chance several tries. Each look therefore gets a smaller level, so that all looks together err in 2.5 %
a side. The number of looks that are as good as independent grows with the logarithm of last over first. The factors
were found by simulation of 3 to 6 attempts (``tests/benchmarks/test_verdict_errors.py``): a row of one point has fewer
degrees of freedom than a ratio, so its looks agree less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from pybench.core.gpu_models import machine_kind
from pybench.core.measurements import Measurements
from pybench.core.numbers import ONE, Scale, bracketed, plain, scale_of, short_percent
from pybench.core.statistics.contrast import Contrast, contrast
from pybench.core.statistics.distributions import quantile
from pybench.core.statistics.interval import TAIL, Interval, estimate, logs, medians, quotient
from pybench.core.statistics.memory import ATTEMPTS_OF_FEW
from pybench.core.statistics.spread import LEAST_SD, variance_of
from pybench.model.results import Estimate
from pybench.model.suite import Effort, Order, Point, provisional
from pybench.model.text import plural
from pybench.model.verdict import Decision, Expected, Verdict
from pybench.model.workloads.registry import METRICS

ERROR = 0.025
"""Probability of a false pass, and of a false fail, of a row exactly at its limit, over all looks."""

_FACTOR_OF_ONE_POINT, _FACTOR_OF_SEVERAL = 3.0, 1.6
# Gains of power sensors differ between boards. An H200's gain is known to 5 %, taken as 2.5 sd of a normal
# distribution.
BOARD_GAIN_SD = 0.02
# A common prior fits points whose spreads differ only roughly. These shares of a look's level hold the errors at 2.5 %
# a row, and any false fail of 30 rows at 5 %, with spreads from 0.3 to 2 % (tests/benchmarks/test_verdict_errors.py).
MODERATED_PASS, MODERATED_FAIL = 0.8, 0.64
_LOG_OF_NOTHING = -1000.0

# N GPUs can beat N times one GPU by a little (more cache, less paging); well beyond that, the baseline was held back.
SUPERLINEAR_MARGIN = 0.10
SPREAD_OF_OTHER_RUNS: dict[tuple[str, str, str], tuple[float, float, int]] = {
    ("train", "torch", "time"): (0.0109, 23.0, 12),
    ("train", "torch", "energy"): (0.0088, 23.0, 12),
    ("generate", "torch", "time"): (0.0092, 26.0, 14),
    ("generate", "torch", "energy"): (0.0055, 26.0, 14),
    ("generate", "vllm", "time"): (0.0118, 49.0, 28),
    ("generate", "vllm", "energy"): (0.0098, 49.0, 28),
    ("generate", "transformers", "time"): (0.1038, 19.0, 9),
    ("generate", "transformers", "energy"): (0.0752, 19.0, 9),
}
"""Spread between attempts of times and throughputs, and of joules, by workload and backend: the pooled standard
deviation of logarithms, its degrees of freedom, and the number of points. From the runs of two attempts or more that
were kept from 21 to 28 November 2026, on H100s and H200s. For joules it is 1.44 times the scatter within runs: a
correlation of 0.6 hides this part of the scatter of three attempts."""
CARDS_OF_OTHER_RUNS = frozenset({"h100", "h200"})
SPREAD_OF_MEMORY = (LEAST_SD, 113.0, 59)
"""Of peak memory in the same runs, which scattered by 0.01 % at most on average."""
_OWN_SPREAD_ATTEMPTS = 3
"""A point of fewer attempts is not judged by its own spread: the interval of two attempts is 13 sd wide."""
_WHOLE_ENERGY = frozenset({"energy_j", "energy_j_per_output_token", "energy_j_per_token"})
_UNUSUAL = 3.0
"""A point of fewer attempts fails only if it would fail with this many times the scatter of other runs."""

ONE_ATTEMPT = "one attempt shows no spread between runs; two are needed"


class Judgement(NamedTuple):
    """Verdict, reason in words, flags, and how it was decided."""

    verdict: Verdict
    reason: str
    flags: tuple[str, ...] = ()
    decision: Decision | None = None


@dataclass(frozen=True, kw_only=True)
class RowStatistics:
    """A row's plain 95 % interval, and the contrast that decides; ``contrast`` is ``None`` with one attempt.

    ``logarithmic`` values are held against the logarithms of limits; ``num_points`` share their spread, 0 if none do.
    A fail must also hold by ``fails_by``, a pass by ``passes_by``. Where values were pulled in, ``fails_by`` has the
    values as measured: the pulled ones may be the good ones of a point with mostly bad attempts. Of points that share
    no spread both assume correlation, passes only of kinds without a known spread. With ``by_other_runs``, few attempts
    are judged by other runs' spread, and ``fails_by`` assumes three times that. ``notes`` name broken assumptions.
    """

    interval: Interval
    contrast: Contrast | None
    pass_level: float
    fail_level: float
    num_points: int = 0
    logarithmic: bool = True
    fails_by: Contrast | None = None
    passes_by: Contrast | None = None
    by_other_runs: bool = False
    notes: tuple[str, ...] = ()

    def decide(self, minimum: float | None, maximum: float | None) -> Decision:
        """Hold it against one limit or both."""
        difference = self.contrast
        if difference is None:
            return Decision(
                num_attempts=1, p_pass=1.0, p_fail=1.0, pass_level=self.pass_level, fail_level=self.fail_level
            )
        limits = [
            (limit if not self.logarithmic else math.log(limit) if limit > 0 else _LOG_OF_NOTHING, side)
            for limit, side in ((minimum, 1), (maximum, -1))
            if limit is not None
        ]

        def tails(by: Contrast | None, better: int) -> list[float]:
            return [by.p_above(limit) if side == better else by.p_below(limit) for limit, side in limits] if by else []

        p_passes = [max(tails(by, 1), default=0.0) for by in (difference, self.passes_by)]
        p_fails = [min(tails(by, -1), default=0.0) for by in (difference, self.fails_by)]
        p_pass, p_fail = max(p_passes), max(p_fails)
        decided = p_pass <= self.pass_level or p_fail <= self.fail_level
        unconfirmed = self.num_points == 0 and any(p <= ERROR and by > p for p, by in (p_passes, p_fails))
        nearest = min((limit for limit, _ in limits), key=lambda limit: abs(difference.value - limit))
        least = _OWN_SPREAD_ATTEMPTS if self.by_other_runs and p_fail < p_pass else 0
        by_spread = difference.attempts_to_decide(nearest, self.fail_level, least)
        return Decision(
            num_attempts=difference.num_attempts,
            p_pass=p_pass,
            p_fail=p_fail,
            pass_level=self.pass_level,
            fail_level=self.fail_level,
            num_points=self.num_points,
            attempts_to_decide=None if decided else ATTEMPTS_OF_FEW if unconfirmed else by_spread,
            is_unconfirmed=unconfirmed,
            is_final=difference.is_final(nearest, self.fail_level),
        )


def row_statistics(
    measurements: Measurements, metric: str, above: Sequence[Point], below: Sequence[Point] = ()
) -> RowStatistics:
    """Statistics of the metric of the points ``above``, multiplied, over that of the points ``below``.

    That is the metric in its unit of one point, a ratio of two points, the change between two ratios. For joules and
    watts they include the error of the sensors. A count has no spread, so one attempt suffices. Raises
    ``NoRatioError`` for ratios of values that are not positive.
    """
    of_tops, of_bases = ([measurements.samples(point)[metric] for point in points] for points in (above, below))
    level = level_of([point.effort for point in (*above, *below)])
    if not below and min(values := medians(of_tops[0])) <= 0:
        return RowStatistics(
            interval=estimate(of_tops[0]),
            contrast=contrast([values]),
            pass_level=level,
            fail_level=level,
            logarithmic=False,
        )
    sensors = sensor_sd(measurements, metric, above, below)
    interval = quotient(of_tops, of_bases, sensors) if below else estimate(of_tops[0], sensors)
    tops, bases = ([logs(samples) for samples in side] for side in (of_tops, of_bases))
    if METRICS[metric].is_count and all(len({*values}) == 1 for values in (*tops, *bases)):
        value, num_attempts = interval[0], min(map(len, (*tops, *bases)))
        known = Contrast(value=math.log(value), variance=0.0, freedom=math.inf, num_attempts=num_attempts)
        return RowStatistics(interval=(value,) * 3, contrast=known, pass_level=level, fail_level=level)
    spread = measurements.spread(metric)
    is_shared = spread is not None and spread.num_points > 0
    usual = None if is_shared else _usual_spread(measurements, metric, [*above, *below])
    if usual is not None and min(map(len, (*tops, *bases))) < _OWN_SPREAD_ATTEMPTS:
        return _by_other_runs(metric, tops, bases, usual, level, sensors)
    fails_by = None
    if spread and (spread.is_unseen or any(spread.pulled_in(values) != values for values in (*tops, *bases))):
        fails_by = contrast(tops, bases, spread.of_a_fail, sensors)
    return RowStatistics(
        interval=interval,
        contrast=contrast(tops, bases, spread, sensors),
        fails_by=fails_by,
        passes_by=fails_by if spread and spread.is_unseen and usual is None else None,
        pass_level=level * MODERATED_PASS if is_shared else level,
        fail_level=level * MODERATED_FAIL if is_shared else level,
        num_points=spread.num_points if spread else 0,
        notes=spread.notes if spread else (),
    )


def _usual_spread(measurements: Measurements, metric: str, points: Sequence[Point]) -> tuple[float, float, int] | None:
    """The largest of the spreads that other runs of the points' kinds have; ``None`` where one is not known."""
    good = (record for point in points for record in measurements.good(point.id))
    cards = {machine_kind((rank.header.device_name,)) for record in good for rank in record.ranks}
    if not cards <= CARDS_OF_OTHER_RUNS:
        return None
    of_what = "energy" if metric in _WHOLE_ENERGY else "time"
    kinds = {(point.settings.workload, point.settings.backend, of_what) for point in points}
    if not kinds <= SPREAD_OF_OTHER_RUNS.keys():
        return None
    if metric == "peak_memory_bytes":
        return SPREAD_OF_MEMORY
    is_known = metric in {"step_s", "job_h"} or METRICS[metric].of_all_gpus or of_what == "energy"
    return max(SPREAD_OF_OTHER_RUNS[kind] for kind in kinds) if is_known else None


def _by_other_runs(
    metric: str,
    tops: Sequence[Sequence[float]],
    bases: Sequence[Sequence[float]],
    usual: tuple[float, float, int],
    level: float,
    sensors: float,
) -> RowStatistics:
    """Where some point has few attempts: points scatter as other runs do, or as their own attempts, if these more.

    Joules of one run's attempts are alike, so two count as one.
    """
    sd, freedom, num_points = usual
    sides = (*tops, *bases)
    are_alike = METRICS[metric].is_of_energy
    own = [variance_of(values) if len(values) > 1 else 0.0 for values in sides]
    variances = [max(sd**2, each) / (1 if are_alike else len(values)) for each, values in zip(own, sides, strict=True)]
    difference = Contrast(
        value=sum(map(fmean, tops)) - sum(map(fmean, bases)),
        variance=sum(variances),
        freedom=freedom,
        num_attempts=min(map(len, sides)),
        systematic_sd=sensors,
    )
    value, (low, high) = math.exp(difference.value), difference.interval(TAIL)
    return RowStatistics(
        interval=(value, math.exp(low), math.exp(high)),
        contrast=difference,
        fails_by=replace(difference, variance=_UNUSUAL**2 * difference.variance),
        pass_level=level,
        fail_level=level,
        num_points=num_points,
        by_other_runs=True,
    )


def level_of(efforts: Sequence[Effort]) -> float:
    """One-sided level of each look at a row of points that get this effort."""
    first, last = min(e.attempts for e in efforts), max(e.max_attempts for e in efforts)
    factor = _FACTOR_OF_ONE_POINT if len(efforts) == 1 else _FACTOR_OF_SEVERAL
    return ERROR / (1 + factor * math.log(max(last, first) / max(first, 1)))


def sensor_sd(measurements: Measurements, metric: str, above: Sequence[Point], below: Sequence[Point] = ()) -> float:
    """Relative sd that power sensors give joules or watts, or a ratio of them; 0 of any other metric.

    No number of attempts takes it out. A board's gain is the same in all of them, and so is a load's place in the
    rhythm of the sensor's sampling: half the width of a window's bound is taken as a normal's 1.96 sd. A point's gain
    is the mean of its boards' gains, so boards that both sides of a ratio have cancel. A limit in joules was set on
    other boards: there nothing cancels.
    """
    if not METRICS[metric].is_of_energy:
        return 0.0
    weights: dict[str, float] = {}
    for sign, point in (*((1.0, point) for point in above), *((-1.0, point) for point in below)):
        boards = measurements.boards(point.id)
        for board in boards:
            weights[board] = weights.get(board, 0.0) + sign / len(boards)
    gain = BOARD_GAIN_SD * math.sqrt(sum(weight**2 for weight in weights.values()))
    sampling = (measurements.energy_bound(point.id, metric) / quantile(TAIL, math.inf) for point in (*above, *below))
    return math.hypot(gain, *sampling)


def verdict_of(decision: Decision) -> Verdict:
    """Verdict at the row's level; fails of a whole run are corrected afterwards."""
    if decision.p_pass <= decision.pass_level:
        return "pass"
    return "fail" if decision.p_fail <= decision.fail_level else "inconclusive"


def more_attempts_text(decision: Decision) -> str:
    """How many attempts an inconclusive row stands on, and would need."""
    attempts = plural(decision.num_attempts, "attempt")
    if decision.is_unconfirmed:
        side = "pass" if decision.p_pass < decision.p_fail else "fail"
        return f"a {side} only if attempts are independent, which {attempts} don't show; {ATTEMPTS_OF_FEW} do"
    if decision.is_final:
        return f"undecided after {attempts}, and more would not decide it (power sensors)"
    if decision.attempts_to_decide is None:
        return f"undecided after {attempts}, too near the limit for any number to be named"
    return f"undecided after {attempts}; about {decision.attempts_to_decide} would decide it"


def judge_ratio(evidence: RowStatistics, expected: Expected | str, linear: float, *, more: bool) -> Judgement:
    """Judge a ratio. ``expected`` is a sentence where nothing is: why.

    ``linear`` is the GPU-count ratio, ``more`` whether more of the metric is better.

    Gates on the worse side alone: beyond the better side is a pass that calls for a new table, unless a throughput
    outgrows its GPUs, which no healthy baseline allows.
    """
    ratio, low, high = evidence.interval
    if more and low is not None and low > linear * (1 + SUPERLINEAR_MARGIN):
        reason = f"{ratio:.2f}x on {linear:g}x the GPUs: the baseline was held back (memory, paging, another process)"
        return Judgement("inconclusive", reason, ("suspect_baseline",))
    if isinstance(expected, str):
        return Judgement("no_expectation", expected)
    gate, beyond = (expected.minimum, expected.maximum) if more else (expected.maximum, expected.minimum)
    if gate is None:
        return Judgement("no_expectation", "the table's row has no limit on this side")
    words = f"at {'least' if more else 'most'} {plain(gate)} expected, found {{}}"
    if expected.predicted is not None and expected.band_fraction is not None:
        words += f"; predicted {plain(expected.predicted)}, band {short_percent(expected.band_fraction)}"
    words = "; ".join(filter(None, (words, provisional(expected.hosts))))
    judgement = _judged(evidence, (gate, None) if more else (None, gate), words)
    if beyond is not None and low is not None and high is not None and (low > beyond if more else high < beyond):
        return judgement._replace(flags=("better_than_expected",))
    return judgement


def judge_value(evidence: RowStatistics, unit: str, minimum: float | None, maximum: float | None) -> Judgement:
    """Judge a metric itself against absolute limits, of which at least one is given."""
    value, low, high = evidence.interval
    scale = scale_of(Estimate(value=value, low=low, high=high, unit=unit))
    limits = [(word, limit) for word, limit in (("at least", minimum), ("at most", maximum)) if limit is not None]
    allowed = " and ".join(f"{word} {plain(limit / scale.factor)} {scale.unit}".rstrip() for word, limit in limits)
    sensors = " with the uncertainty of power sensors" if evidence.contrast and evidence.contrast.systematic_sd else ""
    return _judged(evidence, (minimum, maximum), f"found {{}}{sensors}, allowed {allowed}", scale)


def judge_comparison(evidence: RowStatistics, order: Order, factor: float = 1.0, along: str | None = None) -> Judgement:
    """Judge a metric over another point's: it must lie on one side of ``factor``, or touch it.

    With ``along``, the evidence is of how much that ratio changed from the axis's least value to its greatest.
    """
    below, wanted = order == "below", "as much" if factor == 1 else f"{factor:g} times as much"
    limit, words = factor, f"at {'most' if below else 'least'} {wanted} expected, found {{}} times the other"
    if along is not None:
        limit, words = 1.0, f"the ratio must {'fall' if below else 'rise'} along {along}, found {{}} times the first"
    return _judged(evidence, (None, limit) if below else (limit, None), words)


def _judged(
    evidence: RowStatistics, limits: tuple[float | None, float | None], words: str, scale: Scale = ONE
) -> Judgement:
    """Hold a row against its least and greatest; ``words`` name what is expected, ``{}`` is for the interval."""
    decision, difference = evidence.decide(*limits), evidence.contrast
    value, low, high = evidence.interval
    if low is None or high is None:
        return Judgement("inconclusive", ONE_ATTEMPT, (), decision)

    def shown(least: float, most: float) -> str:
        return bracketed(value, least, most, (plain(end / scale.factor) for end in (least, most)))

    # With all digits that may tell an end from a limit; ends that show only that nothing is known are left out.
    reason = words.format(f"{plain(value / scale.factor)} {shown(low, high)} {scale.unit}".rstrip())
    if evidence.by_other_runs:
        reason = f"{reason}; by the spread of other runs"
    verdict, look = verdict_of(decision), ""
    if verdict != "inconclusive":
        return Judgement(verdict, reason, (), decision)
    # Where the plain interval contains no limit, the one that decides is shown.
    if difference and not any(limit is not None and low <= limit <= high for limit in limits):
        by = (evidence.fails_by if decision.p_fail < decision.p_pass else evidence.passes_by) or difference
        ends = by.interval(min(evidence.pass_level, evidence.fail_level))
        usual = f" and {_UNUSUAL:g} times that spread" if evidence.by_other_runs and by is not difference else ""
        look = f"at this look's level{usual} {shown(*(map(math.exp, ends) if evidence.logarithmic else ends))}, "
    return Judgement(verdict, "; ".join((reason, look + more_attempts_text(decision), *evidence.notes)), (), decision)
