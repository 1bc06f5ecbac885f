"""The gate's power on this machine: the gate judges each of the machine's nights by the others.

Nights that the gate finds changed are no quiet ones and are left out. The others are shuffled, so that each may be the
last. Judging the nights in their own order shows a correlation of nights, which a shuffle destroys.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from pybench.model.figures import SmallestEffects
from pybench.nightly.accepted import about
from pybench.nightly.baseline import MIN_NIGHTS
from pybench.nightly.gate import judge_night
from pybench.nightly.history import Series
from pybench.nightly.values import Accepted, GateResult

_SEED, _ORDERS, _MAX_NIGHTS = 1, 3, 40
_ALARMS = frozenset(("regressed", "host off", "clock"))


@dataclass(frozen=True, kw_only=True)
class Detectable:
    """One metric: the spread between nights of its middle row, and the change for the worse that one night finds.

    ``found_fraction`` is found with 95 % power in the middle row, ``worst_fraction`` in the noisiest, which is of the
    point ``noisiest``. Both are sizes, without a sign.
    """

    metric: str
    num_rows: int
    spread_fraction: float
    found_fraction: float
    worst_fraction: float
    noisiest: str


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """``num_false`` of ``num_judged`` quiet nights, each judged by the others in several orders, had an alarm.

    ``alarms`` are the runs that had one as they came, of ``num_as_came``: changes, or false alarms.
    """

    num_quiet: int
    num_judged: int
    num_false: int
    num_as_came: int
    alarms: tuple[str, ...]
    metrics: tuple[Detectable, ...]


def self_test(
    series: Series, accepted: Sequence[Accepted] = (), effects: SmallestEffects | None = None
) -> SelfTest | None:
    """Judge a series' newest nights, those since :func:`last_accepted` that measured something; ``None`` with too few.

    ``effects`` are the smallest changes that count, as the gate has them.
    """
    since = last_accepted(series, accepted)
    runs = [run for run in series.runs if run.is_measured and run.created_utc[:10] >= since][-_MAX_NIGHTS:]
    came = [judge_night(replace(series, runs=tuple(runs[: n + 1])), (), effects) for n in range(MIN_NIGHTS, len(runs))]
    alarms = tuple(result.run_id for result in came if result.state in _ALARMS)
    quiet = [run for run in runs if run.run_id not in alarms]
    if len(quiet) <= MIN_NIGHTS:
        return None
    # Each night behind the others, in several random orders.
    shuffle, judged = random.Random(_SEED), []  # noqa: S311 - a fixed seed repeats the test
    for last in quiet:
        others = [run for run in quiet if run is not last]
        for _ in range(_ORDERS):
            shuffle.shuffle(others)
            judged.append(judge_night(replace(series, runs=(*others, last)), (), effects))
    return SelfTest(
        num_quiet=len(quiet),
        num_judged=len(judged),
        num_false=sum(result.state in _ALARMS for result in judged),
        num_as_came=len(came),
        alarms=alarms,
        metrics=tuple(_detectable(judge_night(replace(series, runs=tuple(quiet)), (), effects))),
    )


def last_accepted(series: Series, accepted: Sequence[Accepted]) -> str:
    """Date of the last change of this series that is accepted by its last night; empty where none is."""
    own = (one.since for one in about(series, accepted) if one.holds_on(series.last.created_utc))
    return max(own, default="")


def _detectable(result: GateResult) -> Iterator[Detectable]:
    for metric in dict.fromkeys(row.row.metric for row in result.rows):
        rows = [row for row in result.rows if row.row.metric == metric and row.detectable_fraction is not None]
        if rows:
            found = [row.detectable_fraction or 0.0 for row in rows]
            yield Detectable(
                metric=metric,
                num_rows=len(rows),
                spread_fraction=median(row.spread_fraction or 0.0 for row in rows),
                found_fraction=max(median(found), result.effects.of(metric)),
                worst_fraction=max(*found, result.effects.of(metric)),
                noisiest=rows[found.index(max(found))].row.point_id,
            )
