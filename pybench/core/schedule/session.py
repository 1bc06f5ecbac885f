"""Which attempts one worker process makes: those that need the same model, engine or ranks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from pybench.core.schedule.attempts import Attempt, pending
from pybench.model.backend import BACKENDS
from pybench.model.record import Record
from pybench.model.suite import Point


def session_key(point: Point) -> str | None:
    """Text that is the same for points that one process can measure; ``None`` for one that needs its own.

    The key contains every setting that determines the process, what it caches, and its engine's arguments: an engine
    gets the same arguments whether or not its process is shared.
    """
    settings = point.settings
    traits = BACKENDS[settings.backend]
    # Ranks of several hosts meet anew for each attempt: every host's own record of it begins and ends with its process.
    if not point.effort.share_process or settings.num_nodes > 1:
        return None
    if settings.workload in traits.bare_workloads:
        return json.dumps([settings.backend, settings.num_gpus, settings.environment])
    if settings.workload not in traits.warm_settings:
        return None
    free = traits.warm_settings[settings.workload]
    kept = {name: value for name, value in settings.to_json().items() if name not in free}
    return json.dumps([kept, {name: getattr(settings, name) for name in traits.shaping}], sort_keys=True)


def sessions(points: Sequence[Point]) -> Iterator[tuple[Attempt, ...]]:
    """What each worker process of a run makes, one after another, where nothing fails."""
    keys = {point.id: session_key(point) for point in points}
    owed = pending(points, ())
    start = 0
    while start < len(owed):
        end = _session_end(owed, start, lambda point: keys[point.id])
        yield owed[start:end]
        start = end


def next_session(owed: Sequence[Attempt], records: Sequence[Record]) -> tuple[Attempt, ...]:
    """The first of ``owed`` and those right behind it that its process can make, too.

    Each at another point, so that two attempts at one point are two processes. A point that failed in a warm process
    is measured in one of its own from then on.
    """
    failed = {record.point_id for record in records if record.warm_after and not record.ok}
    end = _session_end(owed, 0, lambda point: None if point.id in failed else session_key(point))
    return tuple(owed[:end])


def _session_end(owed: Sequence[Attempt], start: int, key_of: Callable[[Point], str | None]) -> int:
    """Index behind the attempts that one process makes from ``owed[start]`` on."""
    first = owed[start][0]
    key, seen, end = key_of(first), {first.id}, start + 1
    while key is not None and end < len(owed):
        point = owed[end][0]
        if point.id in seen or key_of(point) != key:
            break
        seen.add(point.id)
        end += 1
    return end
