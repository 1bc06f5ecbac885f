"""Texts before a run: the points of a plan, the shipped suites, the doctor's findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pybench.core.judged_by import judged_sentence
from pybench.core.measurements import grouped
from pybench.core.memory import may_not_fit, memory_need
from pybench.core.schedule import pending, sessions
from pybench.model.container import ContainerRequest
from pybench.model.machine import DoctorFinding
from pybench.model.manifest import duration_text
from pybench.model.record import Record
from pybench.model.suite import Plan, Skip, Suite
from pybench.model.text import amount_text, plural
from pybench.report.table import Table, wrapped
from pybench.report.text.table import Paper, hanging

_NEVER_RUN = ("tensorrt_llm", "trtllm")
"""Backends and servers that no GPU has run with pybench yet."""


def render(
    suite: Suite,
    plan: Plan,
    attempt_s: Mapping[str, float] | None = None,
    gpu_memory_bytes: float | None = None,
    *,
    judges: Mapping[str, tuple[str, ...]] | None = None,
    kept_s: Mapping[str, float] | None = None,
    assumed: str | None = None,
    width: int = 80,
) -> str:
    """Points in the order they run, then those that can't run here or were left out, then the totals.

    With ``attempt_s``, the seconds of an attempt by the digest of its point, also how long all attempts take. With
    ``gpu_memory_bytes``, the memory of a GPU, also the need of each point. ``judges`` are what judges each point, by
    its id. ``kept_s`` has those of kept runs. ``assumed`` names GPUs that are not here.
    """
    needs = [(point.id, memory_need(point)) for point in plan.points] if gpu_memory_bytes is not None else []
    tight = [name for name, need in needs if need is not None and may_not_fit(need, gpu_memory_bytes or 0.0)]
    parts = [(point.id, getattr(point.settings, "server", None) or point.settings.backend) for point in plan.points]
    omitted = f"omitted by profile {suite.profile}: {', '.join(suite.omitted)}"
    unproven = ((name, f"no GPU has run pybench's {part} yet") for name, part in parts if part in _NEVER_RUN)
    out = Paper(width)
    hanging(out, f"{suite.name}, profile {suite.profile}" if suite.profile else suite.name)
    planned = () if assumed is None else (f"planned for {assumed}, not for this machine",)
    for line in filter(None, (suite.description, *planned, *_batches(suite), *_container(suite.container))):
        hanging(out, line)
    out.table(_points(plan, gpu_memory_bytes, judges))
    out.print()
    for line in (
        *_reasons(((skip.id, skip.reason) for skip in plan.skips), "skipped: "),
        *_reasons(((skip.id, skip.reason) for skip in plan.left_out), ""),
        *((omitted,) if suite.omitted else ()),
        *_reasons(((name, "a point that runs out of memory is left out") for name in tight), "may not fit: "),
        *_reasons(unproven, "never run: "),
    ):
        hanging(out, line)
    for line in _totals(plan, attempt_s, kept_s or {}):
        hanging(out, line)
    if judges:
        hanging(out, judged_sentence(judges, plan.rates_run))
    return out.text()


@dataclass(frozen=True)
class PlannedPoint:
    """A point; ``attempt_s`` is an attempt's time in earlier or kept runs, in seconds, ``None`` where unknown."""

    id: str
    axes: Mapping[str, object]
    gpus: int
    attempts: int
    steps: int
    judged_by: tuple[str, ...]
    attempt_s: float | None


@dataclass(frozen=True)
class PlanValues:
    """What ``pybench plan --format json`` prints; ``omitted`` are benchmarks that the profile leaves out."""

    suite: str
    profile: str | None
    points: tuple[PlannedPoint, ...]
    skipped: tuple[Skip, ...]
    left_out: tuple[Skip, ...]
    omitted: tuple[str, ...]
    takes: str


def plan_values(
    suite: Suite,
    plan: Plan,
    attempt_s: Mapping[str, float],
    judges: Mapping[str, tuple[str, ...]],
    kept_s: Mapping[str, float],
) -> PlanValues:
    """The plan as values."""
    seconds = {**kept_s, **attempt_s}
    points = tuple(
        PlannedPoint(
            *(point.id, point.axes, point.num_gpus, point.effort.attempts, point.effort.steps),
            *(judges[point.id], seconds.get(point.digest)),
        )
        for point in plan.points
    )
    takes = takes_text(plan, attempt_s, kept_s)
    return PlanValues(suite.name, suite.profile, points, plan.skips, plan.left_out, suite.omitted, takes)


def _points(plan: Plan, gpu_memory_bytes: float | None, judges: Mapping[str, tuple[str, ...]] | None) -> Table:
    """A row for each point, without columns that all would leave empty."""
    columns = {
        "point": [point.id for point in plan.points],
        "GPUs": [str(point.num_gpus) for point in plan.points],
        "attempts": [str(point.effort.attempts) for point in plan.points],
        "steps": [str(point.effort.steps) for point in plan.points],
    }
    if gpu_memory_bytes is not None:
        needs = (memory_need(point) for point in plan.points)
        columns[f"of {amount_text(gpu_memory_bytes)} a GPU"] = ["" if need is None else str(need) for need in needs]
    if judges is not None:
        columns["judged by"] = [", ".join(judges[point.id]) for point in plan.points]
    return Table("", tuple(columns), tuple(zip(*columns.values(), strict=True))).without_empty_columns()


def _reasons(reasons: Iterable[tuple[str, str]], state: str) -> Iterator[str]:
    """Each reason of a point once: behind its point, or above its points where it has several."""
    for reason, names in grouped((reason, name) for name, reason in reasons).items():
        if len(names) == 1:
            yield f"{names[0]}: {state}{reason}"
        else:
            yield f"{state}{reason}"
            yield from (f"  {name}" for name in names)


def _totals(plan: Plan, attempt_s: Mapping[str, float] | None, kept_s: Mapping[str, float]) -> Iterator[str]:
    attempts = sum(point.effort.attempts for point in plan.points)
    made = (
        f"{plural(len(plan.points), 'point')}, {plural(attempts, 'attempt')} in "
        f"{plural(len(tuple(sessions(plan.points))), 'process', 'es')}"
    )
    rest = ((len(plan.skips), "skipped"), (len(plan.left_out), "left out"))
    others = ", ".join(f"{number} {word}" for number, word in rest if number)
    yield f"{made}; {others}" if others else made
    if attempt_s is not None and plan.points:
        yield takes_text(plan, attempt_s, kept_s)


def _batches(suite: Suite) -> Iterator[str]:
    """Batches that were made to fill the GPUs, with the benchmarks that have each."""
    names: dict[str, list[str]] = {}
    for benchmark in suite.benchmarks:
        for setting, values in benchmark.implied.items():
            if setting not in benchmark.axes:
                names.setdefault(f"{setting} {values[0]}, rounded up to fill the GPUs", []).append(benchmark.name)
    yield from (f"{batch}: {', '.join(having)}" for batch, having in names.items())


def _container(request: ContainerRequest) -> Iterator[str]:
    """The suite's demands on the host."""
    wanted = {
        "image": request.image or "",
        "mounts, read-only": ", ".join(f"{mount.source} at {mount.target}" for mount in request.mounts),
        "environment": ", ".join(f"{name}={value}" for name, value in request.environment.items()),
        "secrets passed on": ", ".join(request.secrets),
        "isolation given up": ", ".join(request.relax),
    }
    yield from (f"container {what}: {value}" for what, value in wanted.items() if value)


def takes_text(
    plan: Plan, attempt_s: Mapping[str, float], kept_s: Mapping[str, float], made: Sequence[Record] = ()
) -> str:
    """How long the attempts take that are owed after ``made``: by earlier runs here, else by kept runs."""
    times, owed = {**kept_s, **attempt_s}, [point for point, _ in pending(plan.points, made)]
    if not owed:
        return "nothing is left to measure" if made else "nothing to measure"
    points = {point.id: point.digest for point in owed}.values()
    lacking = sum(digest not in times for digest in points)
    if lacking == len(points):
        return "time unknown: no run of this suite on such a machine is kept"
    is_earlier = all(digest in attempt_s or digest not in times for digest in points)
    by = "earlier runs" if is_earlier else "kept runs of the same kind and number of GPUs"
    unknown = f"; unknown for {lacking} of {plural(len(points), 'point')}" if lacking else ""
    total_s = sum(times.get(point.digest, 0.0) for point in owed)
    return f"{'the rest ' if made else ''}takes about {duration_text(total_s)} by {by}{unknown}"


def render_suites(descriptions: Mapping[str, str], *, width: int = 80) -> str:
    """Names, which commands take in the place of a file, and what each suite measures."""
    out = Paper(width)
    for name, description in descriptions.items():
        hanging(out, f"{name}: {description}")
    hanging(out, "next: pybench plan NAME prints a suite's points, pybench run NAME measures them")
    return out.text()


def render_findings(findings: Sequence[DoctorFinding], *, width: int = 80) -> str:
    """Whether runs can be made here, then a line for each finding, its remedy below it."""
    names = max((len(finding.name) for finding in findings), default=0)
    warnings = sum(finding.state == "warning" for finding in findings)
    counted = plural(warnings, "warning") if warnings else "no warnings"
    missing = ", ".join(finding.name for finding in findings if finding.state == "missing")
    lines = [f"not ready, missing: {missing}; {counted}" if missing else f"ready; {counted}"]
    for finding in findings:
        head = f"{finding.state:8} {finding.name:{names}}  "
        room = max(width - len(head), 20)  # columns beside a name, however narrow the terminal
        remedy = wrapped(f"-> {finding.remedy}", room, after="   ") if finding.remedy else []
        for number, line in enumerate([*wrapped(finding.found, room), *remedy]):
            lines.append(f"{head if number == 0 else ' ' * len(head)}{line}".rstrip())
    return "\n".join(lines) + "\n"
