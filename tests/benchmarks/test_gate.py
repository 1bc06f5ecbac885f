"""Whether the gate keeps its goals: simulated nights with known truth, every goal beside what is found.

40 rows of 20 points, 30 nights of history, three attempts a night. A flagged row is rerun, as the command does: its
attempts are new, what the night did to the row is the same. Run by ``make bench``; the fast tier holds single nights
(``tests/nightly/test_gate.py``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pybench.nightly.gate import judge_night
from pybench.nightly.history import Series
from pybench.nightly.rerun import confirm
from tests.benchmarks.tables import write_table
from tests.nights import Fleet

NUM_NIGHTS = 30
TRIALS, QUIET_TRIALS, KIND_TRIALS = 200, 1000, 50
QUIET = {
    "spread 0.3 to 2 %, one host night in 30 off, 2 % bad attempts": Fleet(),
    "spread 0.5 %, the same": Fleet(night_sds=(0.005, 0.005)),
    "spread 0.5 %, nothing bad": Fleet(night_sds=(0.005, 0.005), bad_attempts=0.0, bad_nights=0.0),
    "spread 0.5 %, one attempt in five of one point 4.7 % slower": Fleet(
        night_sds=(0.005, 0.005), bad_attempts=0.0, bad_nights=0.0, second_speed=(0.2, 0.047)
    ),
    "spread 2 %, nothing bad": Fleet(night_sds=(0.02, 0.02), bad_attempts=0.0, bad_nights=0.0),
}


class Outcome:
    """Of many simulated nights: states before and after reruns, and how often point 0 was found."""

    def __init__(self, fleet: Fleet, trials: int, seed: int, num_nights: int = NUM_NIGHTS) -> None:
        random = np.random.default_rng(seed)
        self.trials = trials
        self.alone: Counter[str] = Counter()
        self.states: Counter[str] = Counter()
        self.found = self.others = self.single = 0
        for _ in range(trials):
            series, (rerun,) = fleet.series_with_reruns(random, num_nights)
            first = judge_night(series)
            result = confirm(first, rerun)
            regressed = {row.row.point_id for row in result.rows if row.state == "regressed"}
            self.alone[first.state] += 1
            self.states[result.state] += 1
            self.found += "p0" in regressed
            self.others += bool(regressed - {"p0"})
            self.single += result.state == "host off" and not regressed

    def percent(self, count: int) -> float:
        return 100 * count / self.trials


def _report(benchmark: Any, capsys: pytest.CaptureFixture[str], rows: list[tuple[str, str, float]]) -> None:
    benchmark.extra_info["found"] = {name: value for name, _, value in rows}
    with capsys.disabled():
        print()
        for name, goal, value in rows:
            print(f"  {name:<70} goal {goal:>6}   found {value:6.2f}")


@pytest.mark.parametrize("name", QUIET)
def test_quiet_nights(benchmark: Any, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Nothing has changed: nights with any false alarm."""

    def simulate() -> list[tuple[str, str, float]]:
        found = Outcome(QUIET[name], QUIET_TRIALS, 1)
        return [
            (f"{name}: false alarms, %", "<= 1", found.percent(found.states["regressed"])),
            ("  before the rerun, %", "-", found.percent(found.alone["regressed"])),
            ("  undecided after it, %", "-", found.percent(found.states["undecided"])),
            ("  host off, %", "-", found.percent(found.states["host off"])),
        ]

    _report(benchmark, capsys, benchmark.pedantic(simulate, rounds=1))


SAME = Fleet(night_sds=(0.007, 0.007), bad_attempts=0.0, bad_nights=0.0)
KINDS: dict[str, tuple[Fleet, int, str]] = {
    "normal": (SAME, 40, "0; 0"),
    "2 % bad attempts": (replace(SAME, bad_attempts=0.02), 40, "1; 0"),
    "rows from 0.3 to 2 %": (replace(SAME, night_sds=(0.003, 0.02)), 40, "0; 0"),
    "nine nights": (SAME, 9, "1; 1"),
    "one attempt a night": (replace(SAME, num_attempts=1), 40, "0; 0"),
    "one attempt in five 3.1 % slower": (replace(SAME, second_speed=(0.2, 0.031), num_second_speed=20), 40, "14; 3"),
    "the same, two attempts a night": (
        replace(SAME, second_speed=(0.2, 0.031), num_second_speed=20, num_attempts=2), 40, "13; 2",
    ),
    "metrics move together": (replace(SAME, kind="metrics move together"), 40, "0; 0"),
    "weekly wave of 1 %": (replace(SAME, kind="weekly wave of 1 %"), 40, "0; 0"),
    "slow random walk": (replace(SAME, kind="slow random walk"), 40, "7; 6"),
    "correlation 0.3": (replace(SAME, kind="correlation 0.3"), 40, "6; 5"),
    "correlation 0.6": (replace(SAME, kind="correlation 0.6"), 40, "34; 32"),
    "heavy tails": (replace(SAME, kind="heavy tails"), 40, "16; -"),
    "spread triples": (replace(SAME, kind="spread triples"), 40, "32; -"),
    "one night in ten 3 % off": (replace(SAME, kind="one night in ten 3 % off"), 40, "88; -"),
}  # fmt: skip
"""Quiet nights by kind, nights of history, and the alarms before and after a rerun that the gate of a620776e had."""


@pytest.mark.timeout(3600)
def test_table_of_kinds(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 50 quiet nights of each kind those with an alarm; rewrites the page."""

    def simulate() -> list[list[str]]:
        rows = [["nights", "before: alarm; after its rerun", "alarm", "after its rerun", "undecided after it"]]
        for name, (fleet, num_nights, before) in KINDS.items():
            found = Outcome(fleet, KIND_TRIALS, 7, num_nights)
            counts = (found.alone["regressed"], found.states["regressed"], found.states["undecided"])
            rows.append([name, before, *(f"{found.percent(count):.0f}" for count in counts)])
        return rows

    write_table("nightly.md", "kinds of nights", benchmark.pedantic(simulate, rounds=1), capsys)


def _found_within(change: float, spread: float, num: int) -> list[float]:
    """Per cent of trials in which a change of point 0 was found by its first night, by its second, and so on."""
    random = np.random.default_rng(3)
    fleet = Fleet(night_sds=(spread, spread), slower=lambda point, night: change * (point == 0 and night >= NUM_NIGHTS))
    found = [0] * num
    for _ in range(TRIALS):
        series, reruns = fleet.series_with_reruns(random, NUM_NIGHTS + num - 1, num)
        for later, rerun in enumerate(reruns):
            night = judge_night(Series(series.runs[: NUM_NIGHTS + 1 + later]))
            rows = confirm(night, rerun).rows
            if any(row.state == "regressed" and row.row.point_id == "p0" for row in rows):
                found = [count + (place >= later) for place, count in enumerate(found)]
                break
    return [100 * count / TRIALS for count in found]


@pytest.mark.parametrize("spread", [0.003, 0.005, 0.01, 0.02])
def test_one_slow_point(benchmark: Any, capsys: pytest.CaptureFixture[str], spread: float) -> None:
    """3 % on its first night, 1.5 % within four nights; a point is found where one of its two rows is."""

    def simulate() -> list[tuple[str, str, float]]:
        goal = ">= 95" if spread <= 0.005 else "-"
        (first,) = _found_within(0.03, spread, 1)
        within = _found_within(0.015, spread, 4)
        name = f"spread {100 * spread:g} %"
        small = [
            (f"{name}: -1.5 % found within {n} nights, %", goal if n == 4 else "-", v) for n, v in enumerate(within, 1)
        ]
        return [(f"{name}: -3 % found on its first night, %", goal, first), *small]

    _report(benchmark, capsys, benchmark.pedantic(simulate, rounds=1))


def test_the_host_and_drifts(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """All points 2 % slower tonight: one finding. One point that loses 0.05 % a night for 60 nights: found."""

    def simulate() -> list[tuple[str, str, float]]:
        half = {"night_sds": (0.005, 0.005)}
        host = Outcome(Fleet(slower=lambda _point, night: 0.02 * (night == NUM_NIGHTS)), TRIALS, 1)
        both = Outcome(Fleet(**half, slower=lambda p, n: (0.02 + 0.05 * (p == 0)) * (n == NUM_NIGHTS)), TRIALS, 2)  # type: ignore[arg-type]
        drift = Outcome(Fleet(**half, slower=lambda point, night: 0.0005 * night * (point == 0)), TRIALS, 3, 60)  # type: ignore[arg-type]
        return [
            ("host 2 % slower, spread 0.3 to 2 %: one finding and no other, %", ">= 95", host.percent(host.single)),
            ("host 2 % and one point 5 % more, spread 0.5 %: that point found, %", ">= 95", both.percent(both.found)),
            ("  with any other point, %", "<= 5", both.percent(both.others)),
            ("one point loses 0.05 % a night for 60 nights: found, %", ">= 95", drift.percent(drift.found)),
        ]

    _report(benchmark, capsys, benchmark.pedantic(simulate, rounds=1))
