"""Two runs of one suite on one machine, with two software stacks, their attempts interleaved."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

from pybench.core.schedule import next_side
from pybench.machine.signals import signals_interrupt
from pybench.model.progress import Progress
from pybench.model.results import Estimate, Results
from pybench.run.loop import OpenRun, Run
from pybench.run.suite_plan import TimeBudget

_NAMES = ("A", "B")


@dataclass(frozen=True)
class SideBySide:
    """The two runs; each keeps its own folder, records and verdict."""

    first: Run
    second: Run

    def finish(self, progress: Progress) -> tuple[Results, Results]:
        """Measure the attempts that both owe in the order A-B-B-A, and judge each run separately.

        No attempts are added for an undecided verdict: both runs keep as many. Raises as :meth:`Run.finish` does.
        """
        runs = (self.first, self.second)
        budget = TimeBudget(self.first.manifest.options.time_limit_s)
        with ExitStack() as held:
            held.enter_context(signals_interrupt())
            held.enter_context(max(runs, key=lambda run: len(run.uuids())).devices(progress, *runs))
            journals = [held.enter_context(run.held()) for run in runs]
            count = _Count()
            opened = [
                held.enter_context(run.opened(records, _Named(progress, name, count), budget))
                for run, records, name in zip(runs, journals, _NAMES, strict=True)
            ]
            count.total = sum(len(open_run.pending()) for open_run in opened)
            try:
                _begin(opened, progress)
                self._measure(opened)
            finally:
                progress.finished()
        return self.first.results(), self.second.results()

    def _measure(self, opened: list[OpenRun]) -> None:
        ids = dict.fromkeys(p.id for run in (self.first, self.second) for p in run.manifest.plan.points)
        places = {name: place for place, name in enumerate(ids)}
        owed = [open_run.owed() for open_run in opened]
        while (side := next_side(owed[0], owed[1], places)) is not None:
            opened[side].measure_next(owed[side])
            owed = [open_run.owed() for open_run in opened]
        for open_run in opened:
            open_run.note_left_out(open_run.pending(), "")


def _begin(opened: list[OpenRun], progress: Progress) -> None:
    attempts = sum(len(open_run.pending()) for open_run in opened)
    folders = " and ".join(str(open_run.run.folder.path) for open_run in opened)
    # The points of both stacks together: a point has one name, also where only one stack varies an axis.
    either = {point.id: point for open_run in opened for point in open_run.run.manifest.plan.points}
    points = [
        replace(point, id=f"{name} {point.id}", benchmark=f"{name} {point.benchmark}")
        for name in _NAMES
        for point in either.values()
    ]
    progress.run_started(" and ".join(open_run.run.folder.run_id for open_run in opened), folders, points, attempts)


@dataclass
class _Count:
    """Attempts of both runs, and how many of them have begun."""

    total: int = 0
    begun: int = 0


@dataclass(frozen=True)
class _Named(Progress):
    """Progress of one of the two: its points are named by the stack that measures them, its attempts count with all."""

    progress: Progress
    name: str
    count: _Count

    def attempt_started(self, point_id: str, attempt: int, position: int, total: int) -> None:
        del position, total  # those of one run alone
        self.count.begun += 1
        self.progress.attempt_started(f"{self.name} {point_id}", attempt, self.count.begun, self.count.total)

    def phase(self, name: str) -> None:
        self.progress.phase(name)

    def step(self, position: int, total: int, phase: str, rate: float, rate_unit: str) -> None:
        self.progress.step(position, total, phase, rate, rate_unit)

    def power(self, watts: float | None) -> None:
        self.progress.power(watts)

    def attempt_finished(self, point_id: str, outcome: str, ok: bool, figure: Estimate | None = None) -> None:
        self.progress.attempt_finished(f"{self.name} {point_id}", outcome, ok, figure)

    def note(self, text: str) -> None:
        self.progress.note(f"{self.name}: {text}")
