"""Reasons against a pass, rows without a verdict, and points left out: each reason once, with its points."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import pairwise

from pybench.core.counts import BY_IMPORTANCE
from pybench.core.good_run import GOOD
from pybench.core.lookup import NO_FIGURE, NO_TABLE
from pybench.core.measurements import grouped
from pybench.core.node_checks import SLOWEST
from pybench.core.node_faults import PARTS, Fault, Part, faults, is_consequence, names_part, remedies, short_id
from pybench.core.verdict import ONE_ATTEMPT
from pybench.model.results import CheckResult, ExpectationRow, Results
from pybench.model.suite import NOT_INSTALLED, Suite, provisional
from pybench.model.text import plural
from pybench.model.verdict import PREDICTION
from pybench.report.run.headline import is_passed_guard
from pybench.report.run.more_attempts import MoreAttempts
from pybench.report.run.view import RunView
from pybench.report.text.labels import joined, short_labels

_SMALLER = "use a smaller batch or model, or more GPUs, for these points"
_OF_CAUSE = {
    "out_of_memory": f"{_SMALLER}, or end other processes on their GPUs",
    "host_memory": "free memory of the host, or take settings that need less of it",
    "missing_package": "install the package for the workers' Python (--python), or use --engine with its image",
    "unsupported": "remove the combination from the suite's axes",
    "time_limit": "raise time_limit_s of the benchmark, or read the log for what it waits for",
    "launch": "check --python and --engine with: pybench doctor",
    "identity": "check the images with: pybench images verify",
}
_CAUSES_OF_HOST = {"out_of_memory", "host_memory", "time_limit"}
"""Causes of a failed attempt that point to the host; the others point to its software."""
_FINISH = "finish the run: pybench run --resume RUN"
_GO_ON = "finish the run, which has the same time again: pybench run --resume RUN"
_LONGER = "run it anew with a longer --time-limit: no attempt ended in this one"
_IN_COMPANY = "end the other process on the GPU, or wait for it, and measure again"
_LEFT_OUT = "find what was not computed, such as experts that no token chooses, or a GPU of another kind than its name"
_EXPECT = "write this machine's rows: pybench expect --from RUN"
_WITH_TABLE = 'to judge it, pybench expect --from RUN -o expected/NAME.toml, then table = "NAME" in the suite'
_EXPLAIN = "find the cause by the node's own rates: pybench run node_check, then pybench explain RUN"
_ALIKE = (
    "no GPU is slower than the others: compare driver, limits and clocks with the table's: nvidia-smi -q -d POWER,CLOCK"
)
_CHECK_NODE = "measure the node itself, then see every figure: pybench run node_check; pybench report -v RUN"
_LOWER_LOAD = "see every percentile, then lower the load or the limit in the suite: pybench report -v RUN"
_ELSEWHERE = "run on a machine that has what is missing, or leave these points out with -k or --max-gpus"
_SEND = "if it stays, drain the node and send its evidence: pybench bundle RUN -o NAME.zip"

MOST_SUBJECTS = 4
"""A reason that holds for more subjects names these, and counts the others."""


@dataclass(frozen=True)
class Finding:
    """One reason. ``subjects`` are the points, GPUs or links it holds for, ``step`` is what to do next.

    ``part`` is what it points to, where that is known; ``evidence`` are the figures behind it.
    """

    verdict: str
    reason: str
    subjects: tuple[str, ...]
    step: str | None = None
    part: Part | None = None
    evidence: tuple[str, ...] = ()

    def text(self, most: int = MOST_SUBJECTS) -> str:
        """Subjects and reason; at most ``most`` subjects are named."""
        if not self.subjects:
            return self.reason
        more = len(self.subjects) - most
        return f"{joined(self.subjects[:most])}{f' and {more} more' if more > 0 else ''}: {self.reason}"


def findings(view: RunView) -> tuple[Finding, ...]:
    """Everything that keeps the run from a pass: what is broken, by part, then figures, the worst first."""
    results = view.results
    names = short_labels(results.points, with_benchmark=True)
    more = MoreAttempts.of(results)
    broken = faults(results.node, results.points, results.provenance.gpus)
    found = [*_of_points(view, names), *_of_rows(results, names, more, broken), *_of_node(results, names, more)]
    places = {part: place for place, part in enumerate((*PARTS, None))}
    rest = sorted(_by_step(_merged(found)), key=lambda f: (places[f.part], BY_IMPORTANCE.index(f.verdict)))
    return _filled((*_of_faults(results, names, broken), *rest), view)


def _of_faults(results: Results, names: dict[str, str], broken: Sequence[Fault]) -> list[Finding]:
    """Each fault with the figures behind it; the last of a kind says what to do."""
    steps = remedies(broken)
    found = []
    for fault in broken:
        slow = {check.point_id for check in fault.checks}
        missed = [row for row in results.expectations if row.verdict == "fail" and not slow.isdisjoint(row.point_ids)]
        evidence = []
        for check in fault.checks:
            name = short_id(check.subject if check.name == "link" else check.name.replace("_", " "))
            point = "" if check.point_id is None else f"{names.get(check.point_id, check.point_id)}, "
            evidence.append(f"{point}{name}: {short_id(check.reason)}")
        evidence += [f"{names.get(row.point_id, row.point_id)}, {row.metric}: {row.reason}" for row in missed]
        step = f"{steps[fault.kind]}; {_SEND}"
        found.append(Finding("fail", fault.sentence, (), step, fault.part, tuple(dict.fromkeys(evidence))))
    return _by_step(found)


def _filled(found: Iterable[Finding], view: RunView) -> tuple[Finding, ...]:
    """Steps with the run's own path and suite where commands have RUN and NAME."""
    if view.path is None:
        return tuple(found)
    run, suite = shlex.quote(str(view.path)), view.results.suite
    if view.is_resumed_below:
        found = (replace(f, step=None) if f.step in {_FINISH, _GO_ON} else f for f in found)
    return tuple(
        replace(f, step=f.step and re.sub(r"\bRUN\b", lambda _: run, f.step).replace("NAME", suite)) for f in found
    )


def by_part(found: Sequence[Finding]) -> tuple[tuple[str, tuple[Finding, ...]], ...]:
    """Findings under the part they point to; without any such, all under no name."""
    if not any(finding.part for finding in found):
        return (("", tuple(found)),) if found else ()
    parts = grouped((finding.part or "figures", finding) for finding in found)
    return tuple((part, tuple(of_part)) for part, of_part in parts.items())


def not_judged(view: RunView) -> tuple[Finding, ...]:
    """Rows of measured points without a limit, and how a table gets their figures."""
    results = view.results
    names = short_labels(results.points, with_benchmark=True)
    measured = {point.id: point.metrics for point in results.points if point.status == "ok"}
    alone = _flagged(results, "single_attempt")

    def step(row: ExpectationRow) -> str | None:
        """How a table gets the row's figure; ``pybench expect`` takes good runs of two attempts."""
        way = _WITH_TABLE if row.reason == NO_TABLE else _EXPECT if NO_FIGURE in row.reason else None
        if way is None or row.metric not in measured[row.point_id]:
            return None
        first = "" if results.verdict in GOOD else "when its other rows pass, "
        return f"{first if alone.isdisjoint(row.point_ids) else 'measure two attempts or more, then '}{way}"

    rows = [(row, step(row)) for row in results.expectations if row.point_id in measured]
    # Where all rows of a point have one reason and step, the point is enough.
    kinds = Counter(point_id for point_id, *_ in {(row.point_id, row.reason, way) for row, way in rows})
    found = []
    for row, way in rows:
        if row.verdict == "no_expectation":
            name = names.get(row.point_id, row.point_id)
            subject = f"{name} {row.metric}" if kinds[row.point_id] > 1 else name
            found.append(Finding("no_expectation", row.reason, (subject,), way))
    if view.manifest is not None:
        found += _of_omitted(view.manifest.suite, {point.benchmark for point in results.points})
    return each_step_once(_filled(_by_step(_merged(found)), view))


def _of_omitted(suite: Suite, planned: AbstractSet[str]) -> Iterator[Finding]:
    """Comparisons of the ``planned`` benchmarks with those that the profile omits."""
    for benchmark in suite.benchmarks:
        for each in benchmark.comparisons:
            if benchmark.name in planned and each.other in suite.omitted:
                reason = f"profile {suite.profile} omits {each.other}, so nothing is compared with it"
                yield Finding("no_expectation", reason, (f"{benchmark.name} {each.metric}",))


def each_step_once(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Of findings that follow each other and have the same step, the last alone has it: for lists that are read."""
    listed = tuple(found)
    cleared = (replace(f, step=None) if f.step == following.step else f for f, following in pairwise(listed))
    return (*cleared, *listed[-1:])


def not_run(results: Results) -> tuple[Finding, ...]:
    """Kinds of points that the plan leaves out, each once, then other skipped points."""
    names = short_labels(results.points, with_benchmark=True)
    skipped = [point for point in results.points if point.status == "skipped"]
    if results.left_out:
        skipped = [point for point in skipped if not (point.reason or "").startswith("left out")]
    unfit = [point for point in results.points if point.status == "does_not_fit"]
    # Of packages that are absent the points below have the remedy.
    kinds = tuple(kind for kind in results.left_out if not (skipped and kind.endswith(NOT_INSTALLED)))
    left_out = [Finding("skipped", "left out of the plan", kinds)] if kinds else []
    others = [
        *(Finding("skipped", point.reason or "", (names[point.id],)) for point in skipped),
        *(Finding("does_not_fit", point.reason or "", (names[point.id],), _SMALLER) for point in unfit),
    ]
    return (*left_out, *_merged(others))


def judged_sentence(results: Results) -> str:
    """For instance ``4 of 6 expectations judged: 4 pass; 2 have no row for h200; 3 losses agree``."""
    counts = results.counts
    agreeing = sum(is_passed_guard(row) for row in results.checks)
    losses = (f"{agreeing} loss{' agrees' if agreeing == 1 else 'es agree'} with another point's",) if agreeing else ()
    if not counts.expected:
        return "; ".join(("nothing is expected", *losses))
    judged = ((counts.passed, "pass"), (counts.failed, "fail"), (counts.inconclusive, "inconclusive"))
    words = ", ".join(f"{number} {word}" for number, word in judged if number)
    without = f"{'has' if counts.without_figure == 1 else 'have'} no row for {results.machine}"
    rest = ((counts.without_figure, without), (counts.missing, "not measured"), (counts.left_out, "left out"))
    verdicts = {word for _, word in judged}
    limits = [row.expected for row in results.scaling if row.expected and row.verdict in verdicts]
    predicted = [limit.rates_run for limit in limits if limit.table == PREDICTION]
    rates = next((f" from rates of {'this run' if run == results.run_id else run}" for run in predicted if run), "")
    hosts = [limit.hosts for limit in limits] + [row.hosts for row in results.checks if row.verdict in verdicts]
    num_provisional = sum(provisional(number) != "" for number in hosts)
    by = ((len(predicted), f"by prediction{rates}"), (num_provisional, "by provisional rows"))
    how = ", ".join(f"{number} {word}" for number, word in by if number)
    first = f"{counts.judged} of {plural(counts.expected, 'expectation')} judged{f' ({how})' if how else ''}"
    first += f": {words}" if words else ""
    return "; ".join((first, *(f"{number} {word}" for number, word in rest if number), *losses))


def _of_points(view: RunView, names: dict[str, str]) -> Iterable[Finding]:
    steps: dict[str, str] = {}
    for point in view.results.points:
        if point.status == "failed":
            reason = point.reason or "failed"
            cause = reason.partition(":")[0]
            log = next((record.log for record in view.records if record.point_id == point.id and record.failure), None)
            step = f"{_OF_CAUSE[cause]}; log" if cause in _OF_CAUSE else "read the worker's log"
            step = f"{step}: {log}" if log else step.removesuffix("; log")
            part: Part = "host" if cause in _CAUSES_OF_HOST else "software"
            # Of several points with one reason the first one's log is enough.
            yield Finding("error", reason, (names[point.id],), steps.setdefault(reason, step), part)
        elif point.status == "missing":
            yield Finding("missing", point.reason or "not measured", (names[point.id],), _finish(view.results))
        elif "fewer_attempts" in point.flags and not _is_limited(view.results):
            made = f"{plural(point.attempts, 'attempt')} made so far"
            yield Finding("missing", made, (names[point.id],), _FINISH)


def _finish(results: Results) -> str:
    """How a run that lacks points comes to an end."""
    if not _is_limited(results):
        return _FINISH
    return _GO_ON if any(point.attempts for point in results.points) else _LONGER


def _of_rows(results: Results, names: dict[str, str], more: MoreAttempts, broken: Sequence[Fault]) -> Iterable[Finding]:
    unmeasured = {point.id for point in results.points if point.status in {"failed", "missing"}}
    beside, short_of_time = _flagged(results, "not_alone"), _flagged(results, "fewer_attempts")
    beyond = _flagged(results, "beyond_peak")
    nodes = {check.point_id for check in results.node}
    for row in results.expectations:
        # A row without its point is no finding: the missing point is one.
        lacks_point = row.verdict in {"missing", "error"} and not unmeasured.isdisjoint(row.point_ids)
        if row.verdict in BY_IMPORTANCE and not lacks_point and not is_consequence(row, broken):
            name = f"{names.get(row.point_id, row.point_id)} {row.metric}"
            step: str | None = None
            if row.point_id in beside:
                step = _IN_COMPANY
            elif row.point_id in beyond:
                step = _LEFT_OUT
            elif row.verdict == "inconclusive":
                step = more.step(row) if short_of_time.isdisjoint(row.point_ids) else _finish(results)
            elif row.verdict == "missing":
                step = _ELSEWHERE
            elif row.verdict == "fail" and isinstance(row, CheckResult):
                # Some points measure the node itself.
                step = _ALIKE if row.point_id in nodes else _CHECK_NODE if row.table else _LOWER_LOAD
            elif row.verdict == "fail":
                step = _EXPLAIN
            yield Finding(row.verdict, row.reason, (name,), step)


def _is_limited(results: Results) -> bool:
    """Whether a time limit may have left attempts out."""
    return any(option.startswith("--time-limit") for option in results.options)


def _flagged(results: Results, flag: str) -> set[str]:
    return {point.id for point in results.points if flag in point.flags}


def _of_node(results: Results, names: dict[str, str], more: MoreAttempts) -> Iterable[Finding]:
    for check in results.node:
        if check.verdict in BY_IMPORTANCE and not names_part(check):
            step = more.step(check) if check.verdict == "inconclusive" else None
            # One attempt of a GPU near the others needs no line of its own.
            lacks_attempts = check.decision is not None and check.decision.is_of_one_attempt and check.is_near_others
            reason = ONE_ATTEMPT if lacks_attempts else check.reason
            where = "" if check.point_id is None else f" in {names.get(check.point_id, check.point_id)}"
            # An undecided GPU need not be the slowest, and the reason has its figure and the others.
            name = check.subject if check.name == SLOWEST else f"{check.subject} {check.name}"
            yield Finding(check.verdict, short_id(reason), (f"{short_id(name)}{where}",), step)


def _by_step(found: Sequence[Finding]) -> list[Finding]:
    """Findings in order, but those with one next step together, so that it is printed once."""
    steps = list(dict.fromkeys(finding.step for finding in found))
    return sorted(found, key=lambda finding: steps.index(finding.step))


def _merged(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding for each reason and step, its subjects in order."""
    alike = grouped((replace(finding, subjects=()), name) for finding in found for name in finding.subjects)
    return tuple(replace(finding, subjects=tuple(dict.fromkeys(names))) for finding, names in alike.items())
