"""Kept results judged again: by today's tables, by predictions from a node's run, and by the spread of other runs.

A ``results.json`` has the attempts' medians, but neither the boards' sensors nor other processes. These rows stay as
they are: joules and watts, checks of the node, and rows over a point that shared its GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from pybench.core.assemble import corrected
from pybench.core.counts import overall
from pybench.core.lookup import NO_TABLE, context_of, figure_row, judged_claim, ratio_row
from pybench.core.measurements import Measurements
from pybench.core.scaling import expectations_of, expected_by_row, judged_ratio
from pybench.core.statistics.interval import NoRatioError
from pybench.core.verdict import judge_comparison, judge_value, row_statistics
from pybench.explain.node import MeasuredNode
from pybench.explain.predictions import point_of_result, predictions, steps_of_results
from pybench.files.shipped import find_suite, load_models
from pybench.files.suite.expected_table import load_tables
from pybench.files.suite.file import read_suite
from pybench.model.errors import FileError
from pybench.model.results import CheckResult, ClaimResult, ComparisonResult, JudgedRow, Results, ScalingResult
from pybench.model.suite import ExpectedTable, Plan, Point, Suite, provisional
from pybench.model.verdict import PREDICTION, Counts, Expected, Prediction
from pybench.model.workloads.registry import METRICS
from pybench.model.workloads.settings import NODES

_NOT_ALONE = frozenset(("not_alone", "beyond_peak", "kv_starved"))
"""Flags of points over which nothing is judged again."""


def judged_again(results: Results, node: MeasuredNode | None) -> Results:
    """The results with today's verdicts; without a node's run no prediction judges."""
    kept = _Kept(results, node)
    scaling = tuple(map(kept.ratio, results.scaling))
    checks = tuple(map(kept.check, results.checks))
    comparisons = tuple(map(kept.comparison, results.comparisons))
    rows: tuple[JudgedRow, ...] = (*scaling, *checks, *comparisons, *results.node)
    scaling, checks, comparisons = corrected(scaling, rows), corrected(checks, rows), corrected(comparisons, rows)
    rows = (*scaling, *checks, *comparisons, *results.node)
    counts = _counts(results.counts, results.rows, rows)
    pinned = (containment := results.provenance.containment) is None or containment.pinned
    points, machine, left_out = results.points, results.machine, results.left_out
    verdict, reason = overall(points, rows, counts=counts, machine=machine, left_out=left_out, is_pinned=pinned)
    if results.verdict == "missing" and verdict not in {"fail", "error"}:
        verdict, reason = results.verdict, results.reason
    return replace(
        results,
        scaling=scaling,
        checks=checks,
        comparisons=comparisons,
        claims=tuple(map(kept.claim, results.claims)),
        counts=counts,
        verdict=verdict,
        reason=reason,
    )


def _counts(counts: Counts, before: Sequence[JudgedRow], now: Sequence[JudgedRow]) -> Counts:
    """The counts moved by the rows whose verdict changed. Rows without a table did not count before."""
    names = {"pass": "passed", "fail": "failed", "inconclusive": "inconclusive", "no_expectation": "without_figure"}
    moved = Counter(names.get(row.verdict) for row in now)
    moved.subtract(names.get(row.verdict) for row in before)
    judged = moved["passed"] + moved["failed"] + moved["inconclusive"]
    shown = sum(old.reason == NO_TABLE != new.reason for old, new in zip(before, now, strict=True))
    shown = max(shown, -moved["without_figure"] - counts.without_figure)  # results of before had another reason
    moved["without_figure"] += shown
    numbers = {name: getattr(counts, name) + moved[name] for name in names.values()}
    return replace(counts, judged=counts.judged + judged, expected=counts.expected + shown, **numbers)


class _Kept:
    """The points of results, by which each row is judged again where they suffice."""

    def __init__(self, results: Results, node: MeasuredNode | None) -> None:
        models = load_models()
        usable = [point for point in results.points if point.status == "ok" and not _NOT_ALONE & set(point.flags)]
        self.results = results
        self.points = {each.id: point for each in usable if (point := point_of_result(each, models)) is not None}
        samples = {
            each.id: {name: tuple((v,) for v in f.medians) for name, f in each.metrics.items() if f.medians}
            for each in usable
        }
        self.measurements = Measurements(Plan(points=tuple(self.points.values()), skips=()), (), dict(samples))
        predicted = () if node is None else predictions(steps_of_results(results), node)
        self.predictions = {(each.point_id, each.baseline_id): each for each in predicted}

    @cached_property
    def _suite(self) -> Suite | None:
        """The shipped suite of this name, ``None`` where there is none today."""
        try:
            path = find_suite(Path(self.results.suite))
            return read_suite(path, profile=self.results.profile, machine_kind=self.results.machine)
        except FileError:
            return None

    @cached_property
    def _tables(self) -> Mapping[str, ExpectedTable]:
        return {} if self._suite is None else load_tables(Path(self._suite.path), sorted(self._suite.tables))

    def _measured(self, metric: str, *names: str | None) -> list[Point]:
        """The points if all have the metric and it needs no sensors; else none."""
        if metric not in METRICS or METRICS[metric].is_of_energy:
            return []
        points = [self.points[name] for name in names if name is not None and name in self.points]
        has_all = len(points) == len(names) and all(metric in self.measurements.samples(point) for point in points)
        return points if has_all else []

    def ratio(self, row: ScalingResult) -> ScalingResult:
        """By the closest row of today's table, else by a prediction."""
        points = self._measured(row.metric, row.point_id, row.baseline_id)
        if not points or row.speedup is None or row.flags:
            return row
        point, baseline = points
        prediction = self.predictions.get((point.id, baseline.id))
        counts = (point.num_gpus, baseline.num_gpus) if row.along == NODES else (row.count, row.baseline_count)
        expected = self._expected(row, point, counts, prediction)
        if expected is None:
            return row
        linear = counts[0] / counts[1]
        interval, judgement = judged_ratio(self.measurements, row.metric, point, baseline, expected, linear, prediction)
        speedup, low, high = interval or (row.speedup, None, None)
        judged = judgement._asdict()
        return replace(row, expected=expected, speedup=speedup, speedup_low=low, speedup_high=high, **judged)

    def _expected(
        self, row: ScalingResult, point: Point, counts: tuple[int, int], prediction: Prediction | None
    ) -> Expected | None:
        wanted = context_of(self.results, row.metric, point.settings.to_json(), point.shape)
        for expectation in expectations_of(self._suite, row) if self._suite else ():
            table = self._tables.get(expectation.table or "")
            if table is not None and (closest := ratio_row(table, wanted, *counts)) is not None:
                return expected_by_row(closest, table.name)
        if row.expected is not None and row.expected.table != PREDICTION:
            return row.expected
        return prediction.expected if prediction is not None and METRICS[row.metric].of_all_gpus else None

    def check(self, row: CheckResult) -> CheckResult:
        """By the closest row of today's table, else by the limits that it had."""
        points = self._measured(row.metric, row.point_id)
        if not points or row.value is None:
            return row
        limited, table = row, self._tables.get(row.table or "")
        context = context_of(self.results, row.metric, points[0].settings.to_json(), points[0].shape)
        if table is not None and (closest := figure_row(table, context, points[0].num_gpus)):
            least, most = closest.limits
            minimum, maximum = (least, None) if METRICS[row.metric].higher_is_better else (None, most)
            limited = replace(row, minimum=minimum, maximum=maximum, source=closest.source, hosts=closest.hosts)
        if limited.minimum is None and limited.maximum is None:
            return row
        evidence = row_statistics(self.measurements, row.metric, points)
        verdict, reason, _, decision = judge_value(evidence, row.value.unit, limited.minimum, limited.maximum)
        reason = "; ".join(filter(None, (reason, provisional(limited.hosts))))
        return replace(limited, verdict=verdict, reason=reason, decision=decision)

    def comparison(self, row: ComparisonResult) -> ComparisonResult:
        """The ratio of two points; how a ratio changes along an axis stays as it is."""
        points = self._measured(row.metric, row.point_id, row.other_id)
        if not points or row.ratio is None or row.flags or row.widening_along is not None:
            return row
        try:
            evidence = row_statistics(self.measurements, row.metric, points[:1], points[1:])
        except NoRatioError:
            return row
        verdict, reason, _, decision = judge_comparison(evidence, row.order, row.factor)
        _, low, high = evidence.interval
        return replace(row, low=low, high=high, verdict=verdict, reason=reason, decision=decision)

    def claim(self, claim: ClaimResult) -> ClaimResult:
        """Kept, not kept, or the number of attempts that would decide."""
        points = self._measured(claim.metric, claim.point_id, *filter(None, (claim.baseline_id,)))
        if not points or claim.widening_along is not None or claim.found.low is not None:
            return claim
        try:
            evidence = row_statistics(self.measurements, claim.metric, points[:1], points[1:])
        except NoRatioError:
            return claim
        return judged_claim(claim, evidence)
