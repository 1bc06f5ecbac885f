"""The gate and the rules of other tools on published benchmark histories.

``public_nights`` has two of them (MIT licence): logarithms of speeds by run and row. ``PYBENCH_NIGHTS`` names a folder
with others. They have no labels. A *fall* is one of 2 % that PELT and E-divisive both find with hindsight, within three
nights of each other. A *quiet* row has no change of 2 % by either. Both choices favour these two. A fall of a quiet row
that lasts seven nights makes these no quiet nights of the row (``History.lasting``). Steps are
also planted in quiet rows. The histories have one value a night, so the next night takes the place of the gate's rerun.

Needs ``pip install apache-otava ruptures asv`` in an environment of its own, because Otava needs an old numpy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pybench.model.figures import PointFigures, RunFigures, SmallestEffects
from pybench.nightly import baseline
from pybench.nightly.gate import judge_night
from pybench.nightly.history import Series
from pybench.nightly.rerun import confirm, flagged
from pybench.nightly.values import Accepted

for package in ("otava", "ruptures", "asv"):
    pytest.importorskip(package)

from tests.benchmarks.night_rules import FRONTIER, RECENT, RULES, Values, otava_changes, pelt_changes  # noqa: E402
from tests.benchmarks.tables import write_table  # noqa: E402

METRIC = "output_tokens_per_s"
WINDOW, FIRST_OF_WINDOW, FIRST = 120, 48, 16
"""Nights of a window, and the first that is judged, of a long and of a short history."""
MOST_ROWS = 16
LEAST_FALL, LEAST_NIGHTS = 0.02, 10
LEAST_KNOWN, LEAST_PAIRS = 5, 43 / 49
"""Nights that must be known of seven, and share of pairs that fall, of a fall that lasts."""
PLANTED = (0.05, 0.10)
SHARES_OFF = (0.06, 0.15, 0.25, 1.0)
BY = (1, 3, 7)
_FIRST_DAY = date(2026, 1, 1)
_FOLDER = Path(__file__).with_name("public_nights")


@dataclass(frozen=True)
class History:
    """``values`` by night and row, ``nan`` where a row was not measured; ``changes`` of each row with their place."""

    name: str
    values: NDArray[np.float64]
    changes: dict[int, list[tuple[int, float]]]
    first: int

    @property
    def quiet(self) -> list[int]:
        """Rows without a change."""
        return [row for row in range(self.values.shape[1]) if row not in self.changes]

    @cached_property
    def lasting(self) -> set[tuple[int, int]]:
        """Night and row of the first seven nights of each fall that lasts.

        Their median is 2 % below the median of the seven nights before, and 43 of the 49 pairs of these nights fall
        (Mann and Whitney, 1 % by chance).
        """
        found: set[tuple[int, int]] = set()
        for row in self.quiet:
            for night in range(RECENT, len(self.values) - RECENT + 1):
                before, since = self.values[night - RECENT : night, row], self.values[night : night + RECENT, row]
                before, since = before[~np.isnan(before)], since[~np.isnan(since)]
                if min(len(before), len(since)) < LEAST_KNOWN or np.median(before) - np.median(since) < LEAST_FALL:
                    continue
                if (since[None, :] < before[:, None]).mean() >= LEAST_PAIRS:
                    found |= {(place, row) for place in range(night, night + RECENT)}
        return found

    def quiet_on(self, night: int) -> set[int]:
        """Rows without a change that are not in the first nights of a lasting fall."""
        return {row for row in self.quiet if (night, row) not in self.lasting}

    @property
    def nights(self) -> range:
        """Nights that are judged; the one after the last stands for its rerun."""
        return range(self.first, len(self.values) - 1)

    @property
    def falls(self) -> list[tuple[int, int]]:
        """Row and night of each labelled fall that has its nights."""
        return [
            (row, place)
            for row, changes in self.changes.items()
            for place, size in changes
            if size <= -LEAST_FALL and place in self.nights
        ]


def histories() -> Iterator[History]:
    """Every window of every history."""
    more = os.environ.get("PYBENCH_NIGHTS")
    paths = [*_FOLDER.glob("*.csv"), *(Path(more).glob("*.csv") if more else ())]
    for path in sorted(paths, key=lambda path: path.name):
        values = np.genfromtxt(path, delimiter=",", skip_header=1)
        num = len(values) // WINDOW
        windows = np.split(values[-num * WINDOW :], num) if num else [values]
        for number, window in enumerate(windows):
            history = _chosen(f"{path.stem} {number}", window, FIRST_OF_WINDOW if num else FIRST)
            if history.quiet:
                yield history


def _chosen(name: str, values: NDArray[np.float64], first: int) -> History:
    """Up to 16 quiet rows and as many with a labelled change, of those that nearly every night has."""
    values = values[:, np.isnan(values).mean(axis=0) <= 0.05]
    quiet: list[int] = []
    changed: dict[int, list[tuple[int, float]]] = {}
    for row in range(values.shape[1]):
        known = values[:, row][~np.isnan(values[:, row])].tolist()
        places = np.flatnonzero(~np.isnan(values[:, row]))
        otava, pelt = otava_changes(known), pelt_changes(known, LEAST_NIGHTS)
        both = [
            (int(places[place]), size)
            for place, size in pelt
            if abs(size) >= LEAST_FALL and any(abs(place - other) <= 3 and size * s > 0 for other, s in otava)
        ]
        if both and len(changed) < MOST_ROWS:
            changed[row] = both
        elif not any(abs(size) >= LEAST_FALL for _, size in (*otava, *pelt)) and len(quiet) < MOST_ROWS:
            quiet.append(row)
    kept = [*quiet, *changed]
    return History(name, values[:, kept], {kept.index(row): found for row, found in changed.items()}, first)


Red = dict[int, set[int]]
"""Rows that are red, by night."""


@dataclass
class Counts:
    """Of one rule."""

    nights: int = 0
    red_nights: int = 0
    rows: int = 0
    red_rows: int = 0
    found: dict[str, list[int | None]] = field(default_factory=dict)
    """Nights until each change was found, the first being 1, by the kind of change; ``None`` within seven."""

    def add(self, history: History, red: Red) -> None:
        """Quiet nights and labelled falls of a history."""
        self.nights += len(red)
        for night, rows in red.items():
            quiet = history.quiet_on(night)
            self.rows += len(quiet)
            self.red_nights += bool(rows & quiet)
            self.red_rows += len(rows & quiet)
        self.found.setdefault("labelled", []).extend(delay(red, *fall) for fall in history.falls)

    def cells(self) -> list[str]:
        """Of the table."""
        return [
            f"{100 * self.red_rows / self.rows:.2f}",
            f"{100 * self.red_nights / self.nights:.1f}",
            *(
                "/".join(f"{100 * np.mean([n is not None and n <= by for n in self.found[kind]]):.0f}" for by in BY)
                for kind in self.found
            ),
        ]


def red_by_rule(history: History, name: str, nights: Sequence[int], rows: Sequence[int]) -> Red:
    """By the rule of another tool; an accepted change is where its row begins."""
    return {night: {row for row in rows if _is_red(history, name, night, row)} for night in nights}


def _is_red(history: History, name: str, night: int, row: int) -> bool:
    start = max((place for place, _ in history.changes.get(row, ()) if place + RECENT <= night), default=0)
    values = history.values[start : night + 1, row]
    known: Values = values[~np.isnan(values)].tolist()
    return len(known) > FIRST // 2 and not math.isnan(values[-1]) and (RULES | FRONTIER)[name](known)


def red_by_gate(history: History, nights: Sequence[int]) -> tuple[Red, Red]:
    """Before the rerun, and after it."""
    alone, after = {}, {}
    runs = [_run(values, night) for night, values in enumerate(history.values)]
    for night in nights:
        accepted = [
            Accepted(point=f"p{row}", since=_day(place), reason="labelled")
            for row, changes in history.changes.items()
            for place, _ in changes
            if place + RECENT <= night
        ]
        result = judge_night(Series(tuple(runs[: night + 1])), accepted, SmallestEffects(default=LEAST_FALL))
        alone[night] = {int(row.row.point_id[1:]) for row in flagged(result)}
        # Another night does not repeat the effect of one night; a rerun of the same night does.
        result = replace(result, rows=tuple(replace(row, nights_as_far=(0, 0)) for row in result.rows))
        result = confirm(result, runs[night + 1])
        after[night] = {int(row.row.point_id[1:]) for row in result.rows if row.state == "regressed"}
    return alone, after


def _run(values: NDArray[np.float64], night: int) -> RunFigures:
    points = (
        PointFigures(id=f"p{row}", benchmark="p", axes={"row": row}, num_gpus=1, digest="d", medians={METRIC: (v,)})
        for row, v in enumerate(np.exp(values).tolist())
        if not math.isnan(v)
    )
    return RunFigures(
        run_id=_day(night), created_utc=f"{_day(night)}T03:00:00+00:00", suite="s", verdict="pass", keys={},
        points=tuple(points),
    )  # fmt: skip


def _day(night: int) -> str:
    return (_FIRST_DAY + timedelta(days=night)).isoformat()


def planted(history: History, size: float, trial: int) -> tuple[History, int, int]:
    """The history with a step in one of its quiet rows, and that row and night."""
    random = np.random.default_rng(trial)
    row = int(random.choice(history.quiet))
    night = int(random.integers(history.first, len(history.values) - BY[-1] - 1))
    values = history.values.copy()
    values[night:, row] -= size
    return History(history.name, values, history.changes, history.first), row, night


def delay(red: Red, row: int, night: int) -> int | None:
    """Nights until a change is red."""
    return next((n for n in range(1, BY[-1] + 1) if row in red.get(night + n - 1, ())), None)


def count(history: History, counts: dict[str, Counts], num_planted: int) -> None:
    """Add a history to the counts of every rule."""

    def judged(history: History, nights: Sequence[int], rows: Sequence[int]) -> dict[str, Red]:
        alone, after = red_by_gate(history, nights)
        gate = {"pybench gate, no rerun": alone, "pybench gate": after}
        return gate | {name: red_by_rule(history, name, nights, rows) for name in RULES}

    for name, red in judged(history, history.nights, range(history.values.shape[1])).items():
        counts.setdefault(name, Counts()).add(history, red)
    for size in PLANTED:
        for trial in range(num_planted):
            changed, row, night = planted(history, size, trial)
            for name, red in judged(changed, range(night, night + BY[-1]), [row]).items():
                counts[name].found.setdefault(f"{100 * size:g} %", []).append(delay(red, row, night))


@pytest.mark.timeout(3600)
def test_histories_of_others(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """False alarms on quiet rows, and falls found by night 1, 3 and 7."""

    def judge() -> dict[str, Counts]:
        counts: dict[str, Counts] = {}
        for history in histories():
            count(history, counts, 6)
        return counts

    counts = benchmark.pedantic(judge, rounds=1)
    with capsys.disabled():
        print()
        for name, own in counts.items():
            print(f"| {name} | {' | '.join(own.cells())} |")


@pytest.mark.timeout(7200)
def test_frontier(benchmark: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarms against detection at several thresholds; with ``PYBENCH_NIGHTS`` it rewrites the page.

    The next night takes the place of the rerun.
    """

    def judge() -> dict[str, Counts]:
        counts: dict[str, Counts] = {}
        for history in histories():
            for share in SHARES_OFF:
                monkeypatch.setattr(baseline, "_MOST_OFF", share)
                _, after = red_by_gate(history, history.nights)
                counts.setdefault(f"pybench gate, {share:g} of nights off", Counts()).add(history, after)
            for name in FRONTIER:
                red = red_by_rule(
                    history, name, range(history.first, len(history.values)), range(history.values.shape[1])
                )
                confirmed = {night: red[night] & red[night + 1] for night in history.nights}
                counts.setdefault(name, Counts()).add(history, confirmed)
        return counts

    rows = [[name, *own.cells()] for name, own in benchmark.pedantic(judge, rounds=1).items()]
    heads = ["rule", "red rows, % of quiet ones", "nights with any, %", "falls found by night 1/3/7, %"]
    if os.environ.get("PYBENCH_NIGHTS"):
        write_table("nightly.md", "frontier", [heads, *rows], capsys)
