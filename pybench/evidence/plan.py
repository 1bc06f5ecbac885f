"""A manifest held against itself and what pybench ships: suite, tables, plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace

from pybench.core.plan.axis_words import with_words
from pybench.core.plan.effort_override import with_effort
from pybench.core.plan.expand import expand, skipped
from pybench.core.plan.point_filter import parse_filter
from pybench.core.plan.required import parse_required
from pybench.core.schedule.time_budget import within
from pybench.evidence.figures import differences
from pybench.evidence.values import Discrepancy, DiscrepancyState
from pybench.model.decoder_shape import Architecture
from pybench.model.errors import PybenchError
from pybench.model.expected import ExpectedTable
from pybench.model.manifest import MANIFEST_FILE, Manifest
from pybench.model.plan_options import time_limit_text
from pybench.model.suite import NOT_INSTALLED, Plan, Point, Skip, Suite

_OWN = "own {kind}, not one that pybench comes with; hold it against a file that you trust with --suite FILE"
_MEASURED, _SKIPPED, _LEFT_OUT = "measured", "skipped", "left out"
# As time limits are written: 1h30m.
_DURATION = re.compile(r"\b(?:\d+[hms])+\b")

WithoutPackages = Callable[[Manifest, Plan], Plan]
"""A plan less the points that a run has as lacking packages, where its Python shows that it lacks them."""

_Entry = tuple[str, Point | Skip]
"""How a plan has a point, and the point or the skip."""


def check_tables(manifest: Manifest, trusted: Mapping[str, ExpectedTable], origin: str) -> Iterator[Discrepancy]:
    """Every expected table is the trusted one of its name; ``origin`` continues "the table"."""
    for name, table in manifest.tables.items():
        place = f"table {name}"
        if name not in trusted:
            yield Discrepancy(place=place, text=_OWN.format(kind="table"), state="not checked")
        elif table != trusted[name]:
            yield Discrepancy(place=place, text=f"not the table {origin}: {_change(table, trusted[name])}")


def _change(table: ExpectedTable, trusted: ExpectedTable) -> str:
    if len(table.rows) != len(trusted.rows):
        return f"{len(table.rows)} rows instead of {len(trusted.rows)}"
    for number, (own, other) in enumerate(zip(table.rows, trusted.rows, strict=True), start=1):
        if own != other:
            fields = [name for name, value in vars(own).items() if vars(other).get(name) != value]
            return f"row {number}: {', '.join(fields)}"
    return "its description"


def check_suite(manifest: Manifest, trusted: Suite | None, origin: str) -> Iterator[Discrepancy]:
    """Profile, description, benchmarks, axes and expectations are those of the trusted suite of its name, if any.

    What the recorded command line changes of it may differ; every report shows those options. ``origin`` continues
    "the suite".
    """
    suite = manifest.suite
    place = f"suite {suite.name}"
    if trusted is None:
        yield Discrepancy(place=place, text=_OWN.format(kind="suite"), state="not checked")
        return
    if suite.profile != trusted.profile:
        text = f"profile: {suite.profile!r} is claimed, {trusted.profile!r} follows from the suite and the machine"
        yield Discrepancy(place=place, text=text)
    if suite.description != trusted.description:
        yield Discrepancy(place=place, text=f"not the suite {origin}: its description")
    options = manifest.options
    efforts = with_effort(trusted, attempts=options.attempts, steps=options.steps)
    wanted = with_words(efforts, num_devices=manifest.machine.devices.count, max_gpus=options.max_gpus)
    theirs = {benchmark.name: benchmark for benchmark in wanted.benchmarks}
    ours = {benchmark.name: benchmark for benchmark in suite.benchmarks}
    for name in dict.fromkeys((*theirs, *ours)):
        if name not in ours or name not in theirs:
            verb = "lacks" if name not in ours else "adds"
            yield Discrepancy(place=place, text=f"not the suite {origin}: {verb} benchmark {name}")
            continue
        changed = [key for key, value in vars(ours[name]).items() if vars(theirs[name])[key] != value]
        if changed:
            text = f"not the suite {origin}: {', '.join(changed)} of benchmark {name}"
            yield Discrepancy(place=place, text=text)


def check_plan(
    manifest: Manifest,
    architectures: Mapping[str, Architecture],
    without_packages: WithoutPackages,
    *,
    same_version: bool,
) -> Iterator[Discrepancy]:
    """Every point that the suite expands to on that machine is in the plan: measured, skipped or left out, as follows.

    Points are planned with their own settings, all others for their own reason; another version estimates and words
    such reasons in another way. How long attempts had taken before, by which a time limit leaves points out, is in no
    file of the run.
    """
    try:
        expanded = expand(
            manifest.suite,
            architectures,
            replace(manifest.machine.devices, kind=manifest.device, num_hosts=max(1, len(manifest.machines))),
            max_gpus=manifest.options.max_gpus,
            keep=_keep(manifest),
            required=parse_required(manifest.options.require),
        )
    except (PybenchError, KeyError, TypeError, ValueError) as error:
        yield Discrepancy(place=MANIFEST_FILE, text=f"its suite does not expand to a plan: {error}")
        return
    ours, theirs = _entries(manifest.plan), _entries(without_packages(manifest, expanded))
    for name in dict.fromkeys((*theirs, *ours)):
        own, following = ours.get(name, ()), theirs.get(name, ())
        if own == following:
            continue
        if reason := _unshown(manifest, own, following):
            yield Discrepancy(place=name, text=reason, state="not checked")
            continue
        text, is_derived = _difference(own, following)
        state: DiscrepancyState = "does not hold"
        if is_derived and same_version:
            text += ": it was changed, or another build of this version planned the run; check with that build"
        elif is_derived:
            text, state = f"{text}; check with pybench {manifest.pybench_version}", "not checked"
        yield Discrepancy(place=name, text=text, state=state)


def is_lacking_packages(skip: Skip) -> bool:
    """Whether a point is not measured because a package is not installed."""
    return skip.lacks is not None and skip.lacks.endswith(NOT_INSTALLED)


def _entries(plan: Plan) -> dict[str, tuple[_Entry, ...]]:
    """By the point's id, which a plan that was edited may have more than once."""
    found: dict[str, tuple[_Entry, ...]] = {}
    kinds: Mapping[str, tuple[Point | Skip, ...]] = {
        _MEASURED: plan.points,
        _SKIPPED: plan.skips,
        _LEFT_OUT: plan.left_out,
    }
    for kind, entries in kinds.items():
        for entry in entries:
            found[entry.id] = (*found.get(entry.id, ()), (kind, entry))
    return found


def _difference(own: tuple[_Entry, ...], following: tuple[_Entry, ...]) -> tuple[str, bool]:
    """Between a plan's entries for one point and those that follow, and whether versions may derive them otherwise."""
    if not own:
        return "the suite has this point, the plan does not", False
    if not following:
        return "the plan has this point, the suite does not", False
    if [kind for kind, _ in own] != [kind for kind, _ in following]:
        text = f"{_words(own)} in the plan, {_words(following)} by the suite on that machine"
        return text, len(own) == len(following)
    if own[0][0] == _MEASURED:
        return "planned with other settings than the suite has for it", False
    pairs = zip(own, following, strict=True)
    found = [pair for (_, one), (_, other) in pairs for pair in differences(asdict(one), asdict(other), tolerance=0.0)]
    return "; ".join(f"{place}: {text}" for place, text in found), True


def _words(entries: tuple[_Entry, ...]) -> str:
    return " and ".join(
        f"{kind} ({entry.reason.removeprefix(f'{_LEFT_OUT}: ')})" if isinstance(entry, Skip) else kind
        for kind, entry in entries
    )


def _unshown(manifest: Manifest, own: tuple[_Entry, ...], following: tuple[_Entry, ...]) -> str | None:
    """Why nothing shows whether a point that follows was not to be measured; ``None`` where something does."""
    if len(own) != 1 or len(following) != 1:
        return None
    (kind, entry), (_, point) = own[0], following[0]
    if not isinstance(entry, Skip) or not isinstance(point, Point):
        return None
    if kind == _LEFT_OUT and _is_beyond(entry, point, manifest.options.time_limit_s):
        return f"not planned: {time_limit_text(manifest.options.time_limit_s or 0.0)} may leave no time for it"
    is_like = entry == skipped(point, entry.reason, entry.lacks)
    if is_like and is_lacking_packages(entry) and manifest.software is None and manifest.container is None:
        return f"not planned: {entry.lacks}, and the run has no record of its Python"
    return None


def _is_beyond(entry: Skip, point: Point, limit_s: float | None) -> bool:
    """Whether the point is left out as planning leaves it out under a time limit, whatever the durations."""
    if limit_s is None:
        return False
    beyond = within(Plan(points=(point,), skips=()), {point.digest: limit_s + 1}, limit_s).left_out
    return [_without_durations(entry)] == [_without_durations(skip) for skip in beyond]


def _without_durations(skip: Skip) -> Skip:
    return replace(skip, reason=_DURATION.sub("TIME", skip.reason))


def _keep(manifest: Manifest) -> Callable[[str], bool]:
    return parse_filter(manifest.options.keep) if manifest.options.keep is not None else lambda _point_id: True
