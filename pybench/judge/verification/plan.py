"""A manifest held against itself and what pybench ships: suite, tables, plan, machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pybench.compute.axis_words import with_words
from pybench.compute.effort_override import with_effort
from pybench.compute.fingerprint import fingerprint, run_fields
from pybench.compute.plan import expand
from pybench.compute.point_filter import parse_filter
from pybench.compute.required import parse_required
from pybench.model.decoder_shape import Architecture
from pybench.model.errors import PybenchError
from pybench.model.expected import ExpectedTable
from pybench.model.manifest import Manifest
from pybench.model.suite import Plan, Suite
from pybench.model.verification import Discrepancy

_MANIFEST = "manifest.json"
_OWN = "own {kind}, not one that pybench comes with; hold it against a file that you trust with --suite FILE"


def check_machine(manifest: Manifest) -> Iterator[Discrepancy]:
    """The fingerprint is that of the machine."""
    found = fingerprint(run_fields(manifest.machine, manifest.machines))
    if found != manifest.fingerprint:
        text = f"the machine's fingerprint is {found}, {manifest.fingerprint} is claimed: the machine was edited"
        yield Discrepancy(place=_MANIFEST, text=text)


def check_tables(manifest: Manifest, trusted: Mapping[str, ExpectedTable]) -> Iterator[Discrepancy]:
    """Every expected table is the trusted one of its name."""
    for name, table in manifest.tables.items():
        place = f"table {name}"
        if name not in trusted:
            yield Discrepancy(place=place, text=_OWN.format(kind="table"), state="not checked")
        elif table != trusted[name]:
            yield Discrepancy(
                place=place, text=f"not the table that pybench comes with: {_change(table, trusted[name])}"
            )


def _change(table: ExpectedTable, trusted: ExpectedTable) -> str:
    if len(table.rows) != len(trusted.rows):
        return f"{len(table.rows)} rows instead of {len(trusted.rows)}"
    for number, (own, other) in enumerate(zip(table.rows, trusted.rows, strict=True), start=1):
        if own != other:
            fields = [name for name, value in vars(own).items() if vars(other).get(name) != value]
            return f"row {number}: {', '.join(fields)}"
    return "its description"


def check_suite(manifest: Manifest, trusted: Suite | None) -> Iterator[Discrepancy]:
    """Benchmarks, axes and expectations are those of the trusted suite of its name, if there is one.

    What the recorded command line changes of it may differ; every report shows those options.
    """
    suite = manifest.suite
    place = f"suite {suite.name}"
    if trusted is None:
        yield Discrepancy(place=place, text=_OWN.format(kind="suite"), state="not checked")
        return
    options = manifest.options
    efforts = with_effort(trusted, attempts=options.attempts, steps=options.steps)
    wanted = with_words(efforts, num_devices=manifest.machine.devices.count, max_gpus=options.max_gpus)
    theirs = {benchmark.name: benchmark for benchmark in wanted.benchmarks}
    ours = {benchmark.name: benchmark for benchmark in suite.benchmarks}
    for name in dict.fromkeys((*theirs, *ours)):
        if name not in ours or name not in theirs:
            verb = "lacks" if name not in ours else "adds"
            yield Discrepancy(place=place, text=f"not the suite that pybench comes with: {verb} benchmark {name}")
            continue
        changed = [key for key, value in vars(ours[name]).items() if vars(theirs[name])[key] != value]
        if changed:
            text = f"not the suite that pybench comes with: {', '.join(changed)} of benchmark {name}"
            yield Discrepancy(place=place, text=text)


def check_plan(manifest: Manifest, architectures: Mapping[str, Architecture]) -> Iterator[Discrepancy]:
    """The plan holds every point that the suite expands to on that machine, each with its own settings."""
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
        yield Discrepancy(place=_MANIFEST, text=f"its suite does not expand to a plan: {error}")
        return
    plan = manifest.plan
    points = {point.id: point for point in expanded.points}
    known, present = _ids(expanded), _ids(plan)
    for name in sorted(known - present):
        yield Discrepancy(place=name, text="the suite has this point, the plan does not")
    for name in sorted(present - known):
        yield Discrepancy(place=name, text="the plan has this point, the suite does not")
    for point in plan.points:
        if points.get(point.id, point) != point:
            yield Discrepancy(place=point.id, text="planned with other settings than the suite has for it")


def _ids(plan: Plan) -> set[str]:
    return {point.id for point in plan.points} | {skip.id for skip in (*plan.skips, *plan.left_out)}


def _keep(manifest: Manifest) -> Callable[[str], bool]:
    return parse_filter(manifest.options.keep) if manifest.options.keep is not None else lambda _point_id: True
