"""``pybench run --ab`` and ``--aa``: a suite with two software stacks in turn, or several times with the same."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from shutil import rmtree, which

from pybench.cli.exit_codes import BY_VERDICT, INTERRUPTED
from pybench.cli.io import echo, terminal_options
from pybench.cli.report import name_faults, name_resuming, write_reports
from pybench.cli.run import RunOptions
from pybench.core.keys import run_figures
from pybench.model.errors import UsageError
from pybench.model.manifest import PartOf
from pybench.model.progress import Progress
from pybench.model.suite import Plan
from pybench.model.text import plural
from pybench.nightly import comparison_text, history_text
from pybench.nightly.comparison import EXIT_CODES, compare
from pybench.nightly.history import read_history, series_of
from pybench.nightly.side_by_side import SideBySide
from pybench.run.engines import LOCAL
from pybench.run.engines.base import EngineOptions, Notify
from pybench.run.engines.choice import choose_launcher
from pybench.run.loop import Run
from pybench.run.prepare import prepare_run
from pybench.run.suite_plan import TimeBudget

_WORST_FIRST = (3, 1, 4)
"""Exit codes of verdicts."""


def run_ab(options: RunOptions, stacks: tuple[str, str], progress: Progress) -> int:
    """Measure two stacks in turn, print how B compares with A, and give the exit code of that."""
    jobs = _both(options, stacks, progress)
    name_faults(jobs[0], progress)
    try:
        both = SideBySide(*jobs).finish(progress)
    except KeyboardInterrupt:
        for job in jobs:
            name_resuming(job)
        return INTERRUPTED
    for job, results in zip(jobs, both, strict=True):
        write_reports(job, results, shown=None)
    before, now = map(run_figures, both)
    comparison = compare(now, [before], across=("software",), others=read_history(options.root).runs)
    # A row that is unchanged is an answer, too.
    echo(comparison_text.render(comparison, (before, now), detail=True, **terminal_options()), nl=False)
    for name, stack, job in zip("AB", stacks, jobs, strict=True):
        echo(f"{name}: {stack}: {job.folder.path}")
    a, b = (shlex.quote(str(job.folder.path)) for job in jobs)
    echo(f"again: pybench compare {b} {a} --across software --history {shlex.quote(str(options.root))} -v")
    if all(results.verdict == "error" for results in both):
        echo(f"both ended in an error; the cause, and what to do: pybench report {a}")
        return BY_VERDICT["error"]
    return EXIT_CODES[comparison.verdict]


def _both(options: RunOptions, stacks: tuple[str, str], progress: Progress) -> tuple[Run, Run]:
    """Runs of both stacks, or none."""
    a, b = (replace(options, engine=_with_stack(options.engine, stack, progress.note)) for stack in stacks)
    note_once = cache(progress.note)
    first = _prepared(a, "ab", note_once)
    folders = [first.folder.path]
    try:
        second = _prepared(b, "ab", note_once)
        folders.append(second.folder.path)
        _check_common(first.manifest.plan, second.manifest.plan, progress)
    except BaseException:
        for folder in folders:
            rmtree(folder, ignore_errors=True)
        raise
    return first, second


def _prepared(options: RunOptions, part_of: PartOf, notify: Notify) -> Run:
    """A run of its own, ready to measure."""
    assert options.suite is not None
    choose = partial(choose_launcher, options.engine, notify=notify)
    return prepare_run(options.suite, options.root, choose, options.plan, part_of=part_of)


def _check_common(a: Plan, b: Plan, progress: Progress) -> None:
    """Note what one stack alone can measure, which is compared with nothing. Raises ``UsageError`` if all is."""
    ids = {point.id for plan in (a, b) for point in plan.points}
    notes = []
    for name, plan in (("A", a), ("B", b)):
        counts = Counter(skip.reason for skip in (*plan.skips, *plan.left_out) if skip.id in ids or not ids)
        notes += [f"{name} can't measure {plural(number, 'point')}: {reason}" for reason, number in counts.items()]
    if {point.id for point in a.points}.isdisjoint(point.id for point in b.points):
        raise UsageError("\n".join(("--ab: no point that both can measure", *notes)))
    for text in notes:
        progress.note(f"--ab: {text}")


def _with_stack(engine: EngineOptions, stack: str, notify: Notify) -> EngineOptions:
    """The options for a Python of this machine or, where there is no such program, for an image."""
    if engine.python or engine.image:
        raise UsageError("--ab names both stacks: leave out --python and --image")
    if which(stack) is None:
        notify(f"--ab {stack}: no program here has this name, so it is taken for an image")
        return replace(engine, image=stack)
    if engine.engine not in {"auto", LOCAL}:
        raise UsageError(f"--ab {stack}: a Python of this machine; it goes with --engine {LOCAL}, not {engine.engine}")
    return replace(engine, engine=LOCAL, python=stack)


def run_again(options: RunOptions, times: int, progress: Progress) -> int:
    """Measure the suite ``times`` times, one run after another, and give the worst exit code of all.

    All runs together share the time limit. The first is made in any case, another
    one if it ends in time when it takes as long as the longest before it.
    """
    budget, note_once = TimeBudget(options.plan.time_limit_s), cache(progress.note)
    options = replace(options, plan=replace(options.plan, time_limit_s=None))
    codes: list[int] = []
    took_s: list[float] = []
    job: Run
    for number in range(1, times + 1):
        if took_s and max(took_s) > budget.left_s:
            echo(f"{budget.limit}: no time for run {number} of {times}")
            break
        begun_s = time.monotonic()
        job = _prepared(options, "aa", note_once)
        name_faults(job, progress)
        try:
            results = job.finish(progress)
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
    past = read_history(options.root)
    runs = [run for run in past.runs if run.suite == suite and run.part_of == "aa"]
    echo(history_text.render(past, series_of(runs, runs[-1]), **terminal_options()), nl=False)
    return next((code for code in _WORST_FIRST if code in codes), 0)
