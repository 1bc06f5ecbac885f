"""Which attempts one worker process makes: those that need the same model, engine or ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pybench.compute.schedule import Attempt, failed_warm, pending
from pybench.model.backend import BACKENDS
from pybench.model.record import Record
from pybench.model.suite import Point


def session_key(point: Point) -> str | None:
    """Text that is the same for points that one process can measure; ``None`` for one that needs its own.

    It holds every setting that shapes what the process is and keeps, and what its engine's arguments are made from: an
    engine is never given other arguments for being shared.
    """
    settings = point.settings
    traits = BACKENDS[settings.backend]
    if not point.effort.share_process:
        return None
    if settings.workload in traits.bare_workloads:
        return json.dumps([settings.backend, settings.num_gpus])
    if settings.workload not in traits.warm_settings:
        return None
    free = traits.warm_settings[settings.workload]
    kept = {name: value for name, value in settings.to_json().items() if name not in free}
    return json.dumps([kept, {name: getattr(settings, name) for name in traits.shaping}], sort_keys=True)


def sessions(points: Sequence[Point]) -> Iterator[tuple[Attempt, ...]]:
    """What each worker process of a run makes, one after another, where nothing fails."""
    owed = pending(points, ())
    while owed:
        session = next_session(owed, ())
        yield session
        owed = owed[len(session) :]


def next_session(owed: Sequence[Attempt], records: Sequence[Record]) -> tuple[Attempt, ...]:
    """The first of ``owed`` and those right behind it that its process can make, too.

    Each at another point, so that two attempts at one point are two processes. A point that failed in a warm process
    is measured in one of its own from then on.
    """
    first, *others = owed
    session, key = [first], session_key(first[0])
    for attempt in others:
        alone = any(failed_warm(point, records) for point, _ in (first, attempt))
        seen = any(attempt[0].id == point.id for point, _ in session)
        if alone or seen or key is None or key != session_key(attempt[0]):
            break
        session.append(attempt)
    return tuple(session)
