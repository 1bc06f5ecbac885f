"""Attempts that run next: rounds over all points, every other round backwards; what of them fits a time limit."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, product

from pybench.core.measurements import grouped
from pybench.core.plan import skipped
from pybench.core.statistics.memory import ATTEMPTS_OF_FEW
from pybench.model.backend import BACKENDS
from pybench.model.manifest import duration_text, time_limit_text
from pybench.model.record import Record
from pybench.model.results import JudgedRow, ScalingResult
from pybench.model.suite import Plan, Point, Skip
from pybench.model.text import plural
from pybench.model.wire import FailureCause
from pybench.model.workloads.registry import METRICS, AnySettings
from pybench.model.workloads.settings import NodeSettings
from pybench.model.workloads.train import Train

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
    by_point = grouped((record.point_id, record) for record in records)
    wanted = {point.id: point.effort.attempts + failed_warm(point, by_point.get(point.id, ())) for point in points}
    owed: list[Attempt] = []
    for number in range(1, max(wanted.values(), default=0) + 1):
        order = points if number % 2 else tuple(reversed(points))
        owed += [(p, number) for p in order if number <= wanted[p.id] and (p.id, number) not in done]
    return tuple((point, number) for point, number in owed if not given_up(point, by_point.get(point.id, ())))


_DECIDING_ROUNDS = 2
"""Attempts of a point that show a spread; one decides a row only by the spread of other runs."""


def by_decision(
    owed: Sequence[Attempt], rows: Sequence[JudgedRow], attempt_s: Mapping[str, float], *, has_rates: bool = False
) -> tuple[Attempt, ...]:
    """The ``owed`` attempts in the order in which they decide ``rows``.

    First come attempts of points that a row judges, group by group: one, and a second where a row is undecided after
    it. A group shares rows or a process, and the group with the least time for each undecided row is first.
    ``attempt_s`` has the seconds of an attempt by the digest of its point; groups of unknown time come last, those with
    more rows first. Then come more attempts of undecided rows, where the points' ``max_attempts`` may decide them.
    Speedups without a row of a table come next, where the plan ``has_rates`` of the node: these rates, then one attempt
    of each. Last come more attempts of other judged points, and points without a row. The given order stays otherwise.
    """
    judging = [row for row in rows if row.verdict != "no_expectation"]
    open_rows = [row for row in judging if row.verdict not in ("pass", "fail")]
    most = {point.id: point.effort.max_attempts for point, _ in owed}
    undecided_ids = {id_ for row in open_rows for id_ in row.point_ids if _needs(row) <= most.get(id_, 0)}
    groups = _groups([point for point, _ in owed], judging)

    def decides(point: Point, number: int) -> bool:
        return point.id in groups and (number == 1 or (number <= _DECIDING_ROUNDS and point.id in undecided_ids))

    deciding = [point for point, number in owed if decides(point, number)]
    times_s = grouped((groups[point.id], attempt_s.get(point.digest, math.inf)) for point in deciding)
    takes_s = {group: sum(seconds) for group, seconds in times_s.items()}
    num_rows = Counter(groups[row.point_ids[0]] for row in open_rows if row.point_ids and row.point_ids[0] in groups)
    order = sorted(takes_s, key=lambda group: (takes_s[group] / max(1, num_rows[group]), -num_rows[group]))
    places = {group: place for place, group in enumerate(order)}
    predicted_ids = {
        id_
        for row in rows
        if has_rates and isinstance(row, ScalingResult) and row.expected is None and METRICS[row.metric].of_all_gpus
        for id_ in row.point_ids
    }

    def place_of(attempt: Attempt) -> tuple[int, int]:
        point, number = attempt
        if decides(point, number):
            return 0, places[groups[point.id]]
        if point.id in undecided_ids:
            return 1, 0
        if predicted_ids and isinstance(point.settings, NodeSettings):
            return 2, 0
        if point.id in predicted_ids and number == 1:
            return 2, 1
        return (3, 0) if point.id in groups else (4, 0)

    return tuple(sorted(owed, key=place_of))


def _needs(row: JudgedRow) -> float:
    """About how many attempts decide an open row: two where it has no spread yet, infinite where no number is known."""
    if row.decision is None or row.decision.is_of_one_attempt:
        return _DECIDING_ROUNDS
    return row.decision.attempts_to_decide or math.inf


def _groups(points: Sequence[Point], rows: Sequence[JudgedRow]) -> dict[str, str]:
    """The group of each point of a row, named by its first point: points that share rows or a process."""
    group = {id_: id_ for row in rows for id_ in row.point_ids}
    in_rows = (point for point in points if point.id in group)
    by_process = grouped((key, point.id) for point in in_rows if (key := session_key(point)) is not None)
    for together in (*(row.point_ids for row in rows), *map(tuple, by_process.values())):
        for first, other in product(together[:1], together[1:]):  # a row of the machine has no point
            old, new = group[other], group[first]
            group = {id_: new if name == old else name for id_, name in group.items()}
    return group


def undecided(points: Sequence[Point], rows: Iterable[JudgedRow], records: Sequence[Record]) -> tuple[Attempt, ...]:
    """One more attempt for every point of a row that more measuring could still decide.

    More attempts change no row without a decision, such as a starved baseline, a loss curve or a driver's count. Even
    attempts run in reverse, as in :func:`pending`: drift biases no point against another.
    """
    most: dict[str, int] = {}
    for row in rows:
        if row.verdict == "inconclusive" and row.decision and not row.decision.is_final:
            beyond = ATTEMPTS_OF_FEW if row.decision.is_unconfirmed else 0
            most.update({id_: max(beyond, most.get(id_, 0)) for id_ in row.point_ids})
    taken = Counter(record.point_id for record in records)
    owed: list[Attempt] = []
    for point in points:
        if point.id in most and not given_up(point, records):
            limit = point.effort.max_attempts
            limit = limit if point.effort.attempts == limit else max(limit, most[point.id])
            if taken[point.id] < limit + failed_warm(point, records):
                owed.append((point, taken[point.id] + 1))
    order = {point.id: place for place, point in enumerate(points)}
    return tuple(sorted(owed, key=lambda a: (a[1], order[a[0].id] if a[1] % 2 else -order[a[0].id])))


def session_key(point: Point) -> str | None:
    """Text that is the same for points that one process can measure; ``None`` for a point that needs a process alone.

    The key has every setting that shapes the process, its caches and its engine's arguments. An engine gets the same
    arguments in a shared process and alone.
    """
    settings = point.settings
    traits = BACKENDS[settings.backend]
    free = traits.warm_settings.get(settings.workload)
    # Ranks of several hosts meet anew for each attempt: every host's own record of it begins and ends with its process.
    if not point.effort.share_process or settings.num_nodes > 1:
        return None
    if settings.workload in traits.bare_workloads:
        return json.dumps([settings.backend, settings.num_gpus, settings.environment])
    if free is None:
        return None
    kept = {name: value for name, value in settings.to_json().items() if name not in free}
    return json.dumps([kept, {name: getattr(settings, name) for name in traits.shaping}], sort_keys=True)


def sessions(points: Sequence[Point]) -> Iterator[tuple[Attempt, ...]]:
    """Attempts of each worker process of a run without failures."""
    keys = {point.id: session_key(point) for point in points}
    owed = pending(points, ())
    while owed:
        session = _session(owed, lambda point: keys[point.id])
        yield session
        owed = owed[len(session) :]


def next_session(owed: Sequence[Attempt], records: Sequence[Record]) -> tuple[Attempt, ...]:
    """The first of ``owed`` and those right behind it that its process can make, too.

    Each at another point, so that two attempts at one point are two processes. A point that failed in a warm process
    gets a fresh process from then on.
    """
    failed = {record.point_id for record in records if record.warm_after and not record.ok}
    return _session(owed, lambda point: None if point.id in failed else session_key(point))


def _session(owed: Sequence[Attempt], key_of: Callable[[Point], str | None]) -> tuple[Attempt, ...]:
    """The first attempts that one process makes."""
    key, seen = key_of(owed[0][0]), {owed[0][0].id}
    for point, _ in owed[1:] if key is not None else ():
        if point.id in seen or key_of(point) != key:
            break
        seen.add(point.id)
    return tuple(owed[: len(seen)])


def next_side(first: Sequence[Attempt], second: Sequence[Attempt], places: Mapping[str, int]) -> int | None:
    """0 for the first run, 1 for the second, ``None`` where neither owes an attempt.

    ``places`` has each point's place in the suite. Both make the same attempts one after the other, the first run
    before the second in odd rounds and behind it in even ones (A-B-B-A): a machine that warms up or slows down favours
    neither.
    """
    if not first or not second:
        return None if not (first or second) else 0 if first else 1
    # Each run makes its attempts by round, every second round backwards.
    one, other = ((n, places[point.id] if n % 2 else -places[point.id]) for point, n in (first[0], second[0]))
    return int(one > other) if one != other else 1 - first[0][1] % 2


METRIC = "batch_size_per_gpu"


def settings_of_next(point: Point, records: Iterable[Record]) -> AnySettings:
    """The point's settings, with an ``auto`` batch size as its first good attempt found it; else as they are."""
    settings = point.settings
    if not isinstance(settings, Train) or not settings.finds_batch_size:
        return settings
    for record in records:
        metrics = (metric for rank in record.ranks for metric in rank.metrics)
        sizes = [int(metric.value) for metric in metrics if metric.name == METRIC]
        if record.point_id == point.id and record.ok and sizes:
            return replace(settings, batch_size_per_gpu=min(sizes))
    return settings


def within(plan: Plan, attempt_s: Mapping[str, float], limit_s: float) -> Plan:
    """Leave out the points that do not fit what the points before them leave of ``limit_s``.

    ``attempt_s`` has the seconds of one attempt by the digest of its point. A point that is not in it stays: how long
    it takes is not known before it is measured.
    """
    left_s, kept, beyond = limit_s, list[Point](), list[Skip]()
    for point in plan.points:
        takes_s = attempt_s.get(point.digest, 0.0) * point.effort.attempts
        if takes_s > left_s:
            limit, attempts = time_limit_text(limit_s), plural(point.effort.attempts, "attempt")
            reason = (
                f"{attempts} of about {duration_text(takes_s)} together do not fit: "
                f"{limit} has {duration_text(left_s)} left for them"
            )
            beyond.append(skipped(point, "time_limit", reason, f"points beyond {limit}"))
        else:
            kept.append(point)
            left_s -= takes_s
    return replace(plan, points=tuple(kept), left_out=(*plan.left_out, *beyond))


def by_likeness(points: Sequence[Point], attempt_s: Mapping[str, float]) -> dict[str, float]:
    """``attempt_s``, and for a point without one the least of those with its benchmark and backend."""
    kinds = {point.digest: (point.benchmark, point.settings.backend) for point in points}
    times_s = grouped((kinds[digest], seconds) for digest, seconds in attempt_s.items() if digest in kinds)
    return {digest: min(times_s[kind]) for digest, kind in kinds.items() if kind in times_s} | dict(attempt_s)


def in_time(attempts: Sequence[Attempt], attempt_s: Mapping[str, float], left_s: float) -> tuple[Attempt, ...]:
    """The ``attempts`` that fit ``left_s`` together, in their order: of each round as many points as possible.

    A round that does not fit loses its longest attempts: two attempts at many points decide more than two at the
    longest one. An attempt of unknown length always fits.
    """
    chosen: list[Attempt] = []
    for _, members in groupby(attempts, key=lambda attempt: attempt[1]):
        of_round = list(members)
        fitting = set[str]()
        for takes_s, id_ in sorted((attempt_s.get(point.digest, 0.0), point.id) for point, _ in of_round):
            if takes_s < left_s:
                fitting.add(id_)
                left_s -= takes_s
        chosen += [attempt for attempt in of_round if attempt[0].id in fitting]
    return tuple(chosen)


def unknown(plan: Plan, attempt_s: Mapping[str, float]) -> tuple[str, ...]:
    """Ids of the points whose attempts have no known length."""
    return tuple(point.id for point in plan.points if point.digest not in attempt_s)
