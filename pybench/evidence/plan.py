"""A run's suite, tables, machine and plan against the suite that pybench comes with, or that the user trusts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pybench.core.gpu_models import machine_kind
from pybench.core.measurements import grouped
from pybench.core.plan import expand, parse_filter, parse_required, skipped, with_effort, with_words
from pybench.core.provenance import fingerprint, run_fields
from pybench.evidence.values import Discrepancy, DiscrepancyState
from pybench.files.shipped import load_models, shipped_suites
from pybench.files.suite.expected_table import load_tables
from pybench.files.suite.file import read_suite
from pybench.files.suite.own_files import FILE_SETTINGS
from pybench.model.errors import FileError, PybenchError
from pybench.model.manifest import MANIFEST_FILE, Manifest, time_limit_text
from pybench.model.suite import NOT_INSTALLED, ExpectedTable, Plan, Point, Skip, Suite

_SENDERS = "the sender's own, no {kind} that pybench comes with; check with one that you trust: --suite FILE"


def check_plan(
    manifest: Manifest, suite_file: Path | None, holds_by: Callable[[ExpectedTable], bool], *, same_build: bool
) -> Iterator[Discrepancy]:
    """Equality 3: suite and tables are the trusted ones, and the suite expands to the run's plan on its machine.

    What another build plans or ships otherwise is not checked. Its table may differ where ``holds_by`` finds the run's
    verdict by the trusted one, too.
    """
    tables = _tables(manifest, suite_file, (lambda _: False) if same_build else holds_by)
    machine_and_suite = (*_machine(manifest), *tables, *_suite(manifest, suite_file))
    for discrepancy in (*machine_and_suite, *_points(manifest, same_build=same_build)):
        is_open = not same_build and discrepancy.state == "does not hold"
        yield replace(discrepancy, state="not checked") if is_open else discrepancy


def _machine(manifest: Manifest) -> Iterator[Discrepancy]:
    """The kind of each machine, which chooses rows of tables, follows from its GPUs; so does the fingerprint."""
    computed = fingerprint(run_fields(manifest.machine, manifest.machines))
    device = manifest.machine.devices.kind
    claims = [("fingerprint", manifest.fingerprint, computed), ("device", manifest.device, device)]
    for machine in (manifest.machine, *(host.machine for host in manifest.machines)):
        names = [gpu.name for gpu in machine.gpus]
        claims += [("kind", machine.kind, machine_kind(names)), ("gpu_count", str(machine.gpu_count), str(len(names)))]
    for name, claimed, follows in claims:
        if claimed != follows:
            text = f"{name}: {claimed!r} is claimed, {follows!r} follows from the GPUs that are listed"
            yield Discrepancy("machine", MANIFEST_FILE, text)


def _tables(
    manifest: Manifest, suite_file: Path | None, holds_by: Callable[[ExpectedTable], bool]
) -> Iterator[Discrepancy]:
    for name, table in manifest.tables.items():
        place = f"table {name}"
        try:
            trusted = load_tables(suite_file or _shipped(manifest), [name])[name]
        except FileError:
            yield Discrepancy("suite", place, _SENDERS.format(kind="table"), "not checked")
            continue
        pairs = enumerate(zip(table.rows, trusted.rows, strict=False), start=1)
        rows = []
        for number, (row, other) in pairs:
            # Older builds do not write a row's hosts, and whether NVLink SHARP was on.
            hosts = None if row.hosts is None else other.hosts
            if row != replace(other, hosts=hosts, nvls="any" if hosts is None and row.nvls == "any" else other.nvls):
                rows.append(number)
        if len(table.rows) != len(trusted.rows):
            text = f"{len(table.rows)} rows, the trusted table has {len(trusted.rows)}"
        elif rows or table != replace(trusted, rows=table.rows):
            text = f"differs from the trusted table in {f'row {rows[0]}' if rows else 'its description'}"
        else:
            continue
        if not holds_by(trusted):
            yield Discrepancy("suite", place, text)


def _suite(manifest: Manifest, suite_file: Path | None) -> Iterator[Discrepancy]:
    """Changes by the recorded command line may differ; every report shows those options."""
    suite, options = manifest.suite, manifest.options
    place = f"suite {suite.name}"
    if files := [word for word in options.settings if word.split("=")[0].strip().split(".")[-1] in FILE_SETTINGS]:
        # The file is the sender's: it is not opened here.
        text = f"its benchmarks are not compared: a file of the command line changes them (--set {files[0]})"
        yield Discrepancy("suite", place, text, "not checked")
        return
    if suite_file is None and not _shipped(manifest).is_file():
        yield Discrepancy("suite", place, _SENDERS.format(kind="suite"), "not checked")
        return
    try:
        read = read_suite(
            suite_file or _shipped(manifest),
            profile=options.profile,
            machine_kind=manifest.machine.kind,
            gpu_memory_bytes=manifest.machine.gpu_memory_bytes,
            settings=options.settings,
        )
    except PybenchError as error:
        if suite_file is not None:
            raise
        yield Discrepancy("suite", place, f"the shipped suite cannot be read for this run: {error}")
        return
    efforts = with_effort(read, attempts=options.attempts, steps=options.steps)
    trusted = with_words(efforts, num_devices=manifest.machine.devices.count, max_gpus=options.max_gpus)
    if parts := list(_changed_parts(suite, trusted)):
        yield Discrepancy("suite", place, f"differs from {trusted.path}: {'; '.join(parts)}")


def _changed_parts(suite: Suite, trusted: Suite) -> Iterator[str]:
    for name in ("name", "profile", "description"):
        if getattr(suite, name) != getattr(trusted, name):
            yield name
    theirs = {benchmark.name: benchmark for benchmark in trusted.benchmarks}
    ours = {benchmark.name: benchmark for benchmark in suite.benchmarks}
    for name in dict.fromkeys((*theirs, *ours)):
        if name not in ours or name not in theirs:
            yield f"{'no' if name not in ours else 'added'} benchmark {name}"
        elif ours[name] != theirs[name]:
            keys = [key for key, value in vars(ours[name]).items() if vars(theirs[name])[key] != value]
            yield f"{', '.join(keys)} of benchmark {name}"


def _shipped(manifest: Manifest) -> Path:
    return shipped_suites() / f"{Path(manifest.suite.name).name}.toml"


_Entry = tuple[str, Point | Skip]
"""State of a point in a plan, and the point or its skip."""


def _points(manifest: Manifest, *, same_build: bool) -> Iterator[Discrepancy]:
    """Each point is measured, skipped or left out as the suite's expansion has it on that machine."""
    options, num_hosts = manifest.options, max(1, len(manifest.machines))
    expanded = expand(
        manifest.suite,
        load_models(),
        replace(manifest.machine.devices, kind=manifest.device, num_hosts=num_hosts),
        max_gpus=options.max_gpus,
        keep=parse_filter(options.keep) if options.keep is not None else lambda _point_id: True,
        required=parse_required(options.require),
        rates_run=manifest.plan.rates_run,
    )
    ours, theirs = _entries(manifest.plan), _entries(expanded)
    for name in dict.fromkeys((*theirs, *ours)):
        claimed, follows = ours.get(name, []), theirs.get(name, [])
        states = [[state for state, _ in entries] for entries in (claimed, follows)]
        # Builds explain a skip in different words.
        is_skip = states[0] == states[1] and "measured" not in states[0]
        if claimed == follows or (is_skip and not same_build) or _lacks_package(claimed, follows):
            continue
        state: DiscrepancyState = "does not hold"
        if states[0] == states[1]:
            text = "planned with other settings or another reason than the suite gives"
        else:
            words = [
                " and ".join(f"{s} ({e.reason})" if isinstance(e, Skip) else s for s, e in entries) or "absent"
                for entries in (claimed, follows)
            ]
            text = f"{words[0]} in the plan, {words[1]} by the suite on that machine"
            if states == [["left out"], ["measured"]] and options.time_limit_s is not None:
                text, state = f"{time_limit_text(options.time_limit_s)} may have left no time for it", "not checked"
        yield Discrepancy("plan", name, text, state)


def _entries(plan: Plan) -> dict[str, list[_Entry]]:
    """By the point's id, which an edited plan may have more than once."""
    states = (("measured", plan.points), ("skipped", plan.skips), ("left out", plan.left_out))
    return grouped((entry.id, (state, entry)) for state, members in states for entry in members)


def _lacks_package(claimed: list[_Entry], follows: list[_Entry]) -> bool:
    """Whether a point was not measured because its Python lacked a package, which the run alone reports."""
    match claimed, follows:
        case [(_, Skip() as skip)], [(_, Point() as point)] if (skip.lacks or "").endswith(NOT_INSTALLED):
            return skip == skipped(point, skip.kind, skip.reason, skip.lacks)
    return False
