"""``pybench run --ab`` and ``--aa``: a suite with two software stacks in turn, or several times with the same."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from shutil import rmtree, which

from pybench.cli.exit_codes import BY_VERDICT, INTERRUPTED
from pybench.cli.io import echo, terminal_options
from pybench.cli.report import name_faults, name_resuming, write_reports
from pybench.core.keys import run_figures
from pybench.model.errors import UsageError
from pybench.model.manifest import PartOf, PlanOptions
from pybench.model.progress import Progress
from pybench.model.suite import Plan
from pybench.model.text import plural
from pybench.nightly import comparison_text, history_text
from pybench.nightly.comparison import EXIT_CODES, compare
from pybench.nightly.history import read_history, series_of
from pybench.nightly.side_by_side import SideBySide
from pybench.run.engines import LOCAL
from pybench.run.engines.base import EngineOptions
from pybench.run.engines.choice import choose_launcher
from pybench.run.loop import Run
from pybench.run.prepare import prepare_run
from pybench.run.suite_plan import TimeBudget

_WORST_FIRST = (3, 1, 4)
"""Exit codes of verdicts."""


@dataclass(frozen=True)
class Several:
    """The suite, the folder and the command line's options of all runs."""

    suite: Path
    root: Path
    options: PlanOptions
    engine: EngineOptions
    progress: Progress

    def prepared(self, engine: EngineOptions, part_of: PartOf) -> Run:
        """A run of its own, ready to measure."""
        choose = partial(choose_launcher, engine, notify=self._note_once)
        return prepare_run(self.suite, self.root, choose, self.options, part_of=part_of)

    @cached_property
    def _note_once(self) -> Callable[[str], None]:
        """Prints each note once for all runs."""
        return cache(self.progress.note)


def run_ab(several: Several, stacks: tuple[str, str]) -> int:
    """Measure two stacks in turn, print how B compares with A, and give the exit code of that."""
    jobs = _both(several, stacks)
    name_faults(jobs[0], several.progress)
    try:
        results = SideBySide(*jobs).finish(several.progress)
    except KeyboardInterrupt:
        for job in jobs:
            name_resuming(job)
        return INTERRUPTED
    for job, own in zip(jobs, results, strict=True):
        write_reports(job, own, shown=None)
    before, now = map(run_figures, results)
    found = compare(now, [before], across=("software",), others=read_history(several.root).runs)
    # A row that is unchanged is an answer, too.
    echo(comparison_text.render(found, (before, now), detail=True, **terminal_options()), nl=False)
    for name, stack, job in zip("AB", stacks, jobs, strict=True):
        echo(f"{name}: {stack}: {job.folder.path}")
    a, b = (shlex.quote(str(job.folder.path)) for job in jobs)
    echo(f"again: pybench compare {b} {a} --across software --history {shlex.quote(str(several.root))} -v")
    if all(own.verdict == "error" for own in results):
        echo(f"both ended in an error; the cause, and what to do: pybench report {a}")
        return BY_VERDICT["error"]
    return EXIT_CODES[found.verdict]


def _both(several: Several, stacks: tuple[str, str]) -> tuple[Run, Run]:
    """Runs of both stacks, or none."""
    engines = [_with_stack(several, stack) for stack in stacks]
    first = several.prepared(engines[0], "ab")
    folders = [first.folder.path]
    try:
        second = several.prepared(engines[1], "ab")
        folders.append(second.folder.path)
        _check_common(first.manifest.plan, second.manifest.plan, several.progress)
    except BaseException:
        for folder in folders:
            rmtree(folder, ignore_errors=True)
        raise
    return first, second


def _check_common(a: Plan, b: Plan, progress: Progress) -> None:
    """Note what one stack alone can measure, which is compared with nothing. Raises ``UsageError`` if all is."""
    ids = {point.id for plan in (a, b) for point in plan.points}
    found = []
    for name, plan in (("A", a), ("B", b)):
        counts = Counter(skip.reason for skip in (*plan.skips, *plan.left_out) if skip.id in ids or not ids)
        found += [f"{name} can't measure {plural(number, 'point')}: {reason}" for reason, number in counts.items()]
    if {point.id for point in a.points}.isdisjoint(point.id for point in b.points):
        raise UsageError("\n".join(("--ab: no point that both can measure", *found)))
    for text in found:
        progress.note(f"--ab: {text}")


def _with_stack(several: Several, stack: str) -> EngineOptions:
    """The options for a Python of this machine or, where there is no such program, for an image."""
    engine = several.engine
    if engine.python or engine.image:
        raise UsageError("--ab names both stacks: leave out --python and --image")
    if which(stack) is None:
        several.progress.note(f"--ab {stack}: no program here has this name, so it is taken for an image")
        return replace(engine, image=stack)
    if engine.engine not in {"auto", LOCAL}:
        raise UsageError(f"--ab {stack}: a Python of this machine; it goes with --engine {LOCAL}, not {engine.engine}")
    return replace(engine, engine=LOCAL, python=stack)


def run_again(several: Several, times: int) -> int:
    """Measure the suite ``times`` times, one run after another, and give the worst exit code of all.

    All runs together share the time limit. The first is made in any case, another
    one if it ends in time when it takes as long as the longest before it.
    """
    budget = TimeBudget(several.options.time_limit_s)
    several = replace(several, options=replace(several.options, time_limit_s=None))
    codes: list[int] = []
    took_s: list[float] = []
    job: Run
    for number in range(1, times + 1):
        if took_s and max(took_s) > budget.left_s:
            echo(f"{budget.limit}: no time for run {number} of {times}")
            break
        begun_s = time.monotonic()
        job = several.prepared(several.engine, "aa")
        name_faults(job, several.progress)
        try:
            results = job.finish(several.progress)
        except KeyboardInterrupt:
            echo(f"pybench: run {number} of {times} is not finished", err=True)
            name_resuming(job)
            return INTERRUPTED
        write_reports(job, results, shown=None)
        echo(f"run {number} of {times}: {results.verdict.replace('_', ' ')}: {job.folder.path}")
        codes.append(BY_VERDICT[results.verdict])
        took_s.append(time.monotonic() - begun_s)
    suite = job.manifest.suite.name
    # These runs and earlier ones of --aa in the same folder.
    past = read_history(several.root)
    runs = [run for run in past.runs if run.suite == suite and run.part_of == "aa"]
    echo(history_text.render(past, series_of(runs, runs[-1]), **terminal_options()), nl=False)
    return next((code for code in _WORST_FIRST if code in codes), 0)
