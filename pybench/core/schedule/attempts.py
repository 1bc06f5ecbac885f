"""Which attempt runs next: rounds over all points, every other round backwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pybench.model.record import Record
from pybench.model.results import JudgedRow
from pybench.model.suite import Point
from pybench.model.wire import FailureCause

# Another attempt would end the same way, or cost its whole time limit again.
FINAL_CAUSES: frozenset[FailureCause] = frozenset(
    {
        "out_of_memory",
        "host_memory",
        "missing_package",
        "unsupported",
        "wrong_result",
        "collective_timeout",
        "time_limit",
    }
)

Attempt = tuple[Point, int]
"""A point and the 1-based number of its attempt."""


def failed_warm(point: Point, records: Iterable[Record]) -> int:
    """How many attempts at ``point`` failed in a process that had measured other points before.

    What those left behind may be the cause: such an attempt condemns nothing, and another one is owed in its place.
    """
    return sum(record.point_id == point.id and not record.ok and bool(record.warm_after) for record in records)


def given_up(point: Point, records: Iterable[Record]) -> bool:
    """Whether a recorded failure of ``point`` makes more attempts pointless."""
    return any(
        record.failure is not None and record.failure.cause in FINAL_CAUSES
        for record in records
        if record.point_id == point.id and not record.warm_after
    )


def pending(points: Sequence[Point], records: Sequence[Record]) -> tuple[Attempt, ...]:
    """Attempts still owed to ``points``, in the order to run them.

    Round by round instead of point by point, and every second round in reverse (A-B-B-A): a machine that warms up or
    slows down over the run then biases no point against another.
    """
    done = {(record.point_id, record.attempt) for record in records}
    by_point: dict[str, list[Record]] = {point.id: [] for point in points}
    for record in records:
        by_point.setdefault(record.point_id, []).append(record)
    wanted = {point.id: point.effort.attempts + failed_warm(point, by_point[point.id]) for point in points}
    owed: list[Attempt] = []
    for number in range(1, max(wanted.values(), default=0) + 1):
        order = points if number % 2 else tuple(reversed(points))
        owed += [(p, number) for p in order if number <= wanted[p.id] and (p.id, number) not in done]
    return tuple((point, number) for point, number in owed if not given_up(point, by_point[point.id]))


def undecided(points: Sequence[Point], rows: Iterable[JudgedRow], records: Sequence[Record]) -> tuple[Attempt, ...]:
    """One more attempt for every point of a row that more measuring could still decide.

    Rows without a decision (a starved baseline, a loss curve, what a driver counted) stay as they are, however often
    they are measured. Even attempts run in reverse, as in :func:`pending`: drift biases no point against another.
    """
    wanted = {point_id for row in rows if _could_change(row) for point_id in row.point_ids}
    taken = Counter(record.point_id for record in records)
    owed = [
        (point, taken[point.id] + 1)
        for point in points
        if point.id in wanted
        and taken[point.id] < point.effort.max_attempts + failed_warm(point, records)
        and not given_up(point, records)
    ]
    order = {point.id: place for place, point in enumerate(points)}
    return tuple(sorted(owed, key=lambda a: (a[1], order[a[0].id] if a[1] % 2 else -order[a[0].id])))


def _could_change(row: JudgedRow) -> bool:
    decision = row.decision
    return row.verdict == "inconclusive" and decision is not None and not decision.is_final
