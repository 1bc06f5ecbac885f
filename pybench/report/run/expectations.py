"""Everything that a suite expects of points, by point."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.core.loss_curve import METRIC as LOSS_GUARD
from pybench.model.results import CheckResult, ExpectationRow, PointResult, Results, ScalingResult
from pybench.report.run.headline import headline_name

NONE = "-"
_WORST = ("fail", "error", "missing", "inconclusive", "pass")


@dataclass(frozen=True)
class Expectations:
    """Expectations of each point, by its id."""

    by_point: dict[str, tuple[ExpectationRow, ...]]
    baselines: frozenset[str]

    @classmethod
    def of(cls, results: Results) -> Expectations:
        """Sort the rows of ``results`` by point."""
        found: dict[str, list[ExpectationRow]] = {}
        for row in results.expectations:
            found.setdefault(row.point_id, []).append(row)
        baselines = frozenset(row.baseline_id for row in results.scaling if row.speedup is not None)
        return cls({point_id: tuple(rows) for point_id, rows in found.items()}, baselines)

    def verdict(self, point: PointResult) -> str:
        """The worst verdict of everything expected of the point; its status where it was not measured, else a dash.

        A loss that agrees with another point's is no expectation, and no pass.
        """
        if point.status != "ok":
            return point.status
        found = {row.verdict for row in self.by_point.get(point.id, ()) if not is_passed_guard(row)}
        return next((verdict for verdict in _WORST if verdict in found), NONE)

    def ratio(self, point: PointResult) -> ScalingResult | None:
        """The ratio of the headline figure, else the first."""
        own = [row for row in self.by_point.get(point.id, ()) if isinstance(row, ScalingResult)]
        return next((row for row in own if row.metric == headline_name(point)), own[0] if own else None)

    def check(self, point: PointResult, metric: str | None) -> CheckResult | None:
        """The limits on one metric of the point."""
        own = (row for row in self.by_point.get(point.id, ()) if isinstance(row, CheckResult))
        return next((row for row in own if row.metric == metric), None)


def is_passed_guard(row: ExpectationRow) -> bool:
    """Whether the row shows that a training computes what another one does, which no suite asks for."""
    return row.metric == LOSS_GUARD and row.verdict == "pass"
