"""Points and attempts of a plan that fit a time limit, by the times of earlier attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from pybench.core.schedule.attempts import Attempt
from pybench.model.plan_options import duration_text, time_limit_text
from pybench.model.plural import plural
from pybench.model.suite import Plan, Point, Skip


def within(plan: Plan, attempt_s: Mapping[str, float], limit_s: float) -> Plan:
    """Leave out the points that do not fit what the points before them leave of ``limit_s``.

    ``attempt_s`` has the seconds of one attempt by the digest of its point. A point that is not in it stays: how long
    it takes is not known before it is measured.
    """
    left_s, kept, beyond = limit_s, list[Point](), list[Skip]()
    for point in plan.points:
        takes_s = attempt_s.get(point.digest, 0.0) * point.effort.attempts
        if takes_s > left_s:
            beyond.append(_beyond(point, takes_s, left_s, limit_s))
        else:
            kept.append(point)
            left_s -= takes_s
    return replace(plan, points=tuple(kept), left_out=(*plan.left_out, *beyond))


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


def _beyond(point: Point, takes_s: float, left_s: float, limit_s: float) -> Skip:
    limit = time_limit_text(limit_s)
    attempts = plural(point.effort.attempts, "attempt")
    return Skip(
        id=point.id,
        benchmark=point.benchmark,
        axes=point.axes,
        num_gpus=point.num_gpus,
        reason=f"{attempts} of about {duration_text(takes_s)} together do not fit: "
        f"{limit} has {duration_text(left_s)} left for them",
        lacks=f"points beyond {limit}",
    )
