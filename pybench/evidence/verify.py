"""Everything that a run claims, computed again: five equalities, and the digest of the worker that measured it."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from pybench.core.assemble import assemble
from pybench.core.measurements import Measurements
from pybench.core.schedule import pending, undecided
from pybench.evidence.archive import (
    CRATE,
    STATEMENT,
    SUMS,
    BundleError,
    descriptions,
    digest_of,
    evidence_files,
    parse_sums,
    require_archive,
    unpack_bundle,
)
from pybench.evidence.plan import check_plan
from pybench.evidence.signature import check_signature
from pybench.evidence.values import Discrepancy, DiscrepancyState, Verification
from pybench.files.run.folder import RunFolder
from pybench.files.safe_folder import read_below
from pybench.model.errors import PybenchError, fault_text
from pybench.model.machine import this_build
from pybench.model.manifest import MANIFEST_FILE, Manifest, time_limit_text
from pybench.model.record import JOURNAL_FILE, Record
from pybench.model.results import RESULTS_FILE, Results
from pybench.model.suite import ExpectedTable
from pybench.power.measured_window import joined_conditions, joined_energy, window_ns
from pybench.power.sensor import shipped_model
from pybench.power.trace_file import read_trace
from pybench.report.run.results_json import render as results_text
from pybench.report.run.view import RunView
from pybench.run.engines.stage import installed_digest, worker_digest
from pybench.run.hosts.worker import joined_parts

_TOLERANCE = 1e-9
"""Relative tolerance of figures: builds of NumPy sum in different orders. No report prints that many digits."""

_NAMES = ("id", "point_id", "name", "subject", "metric", "count", "uuid")
_LONGEST = 80
_MAX_SUMS_BYTES = 2**23
"""The digests of as many files as a bundle may have, with long names, take 6 MB."""

_ENERGY_TOLERANCE = 1e-6
"""Relative tolerance of joules: builds of NumPy solve fits in different orders."""
_OTHER_BUILD_TOLERANCE, _OTHER_WIDTH_TOLERANCE = 0.01, 0.3
"""Relative tolerances of another build's joules and widths of bounds: its sensor model may have other constants."""

_LATER = timedelta(days=1)
"""The wall clock of a later boot may be behind by this: it is set by hand or by NTP."""

_MALFORMED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    *(RecursionError, MemoryError),
)
"""Errors of computations with edited values."""


def verify_bundle(file: Path, suite_file: Path | None = None, signers: Path | None = None) -> Verification:
    """Verify the bundle ``file``; with ``signers`` one of them must have signed it.

    Raises ``UsageError`` where there is no file, no zip archive or no file of signers, and as :func:`verify_folder`.
    """
    require_archive(file)
    signature, unsigned = check_signature(file, signers)  # equality 1
    with tempfile.TemporaryDirectory(prefix="pybench-verify-") as scratch:
        try:
            folder = unpack_bundle(file, Path(scratch))
        except BundleError as error:
            broken = Discrepancy("unreadable", file.name, str(error).removeprefix(f"{file}: "))
            return Verification(run_id=file.name, discrepancies=(*unsigned, broken))
        inside = verify_folder(folder, suite_file, bundled=True)
        if inside.run_id != folder.name:
            text = f"is of run {inside.run_id}, the bundle of {folder.name}"
            unsigned = (*unsigned, Discrepancy("digest", MANIFEST_FILE, text))
    return replace(inside, discrepancies=(*unsigned, *inside.discrepancies), signature=signature)


def verify_folder(path: Path, suite_file: Path | None = None, *, bundled: bool = False) -> Verification:
    """Verify the run in ``path``; ``suite_file`` is a suite to trust in place of the one that pybench comes with.

    With ``bundled`` the folder was unpacked from a bundle and has its list of digests. Raises ``RunFolderError`` where
    there is none or it is closed to this user, ``FileError`` for a suite file that can't be read; else a discrepancy.
    """
    path = path.resolve()  # as errors below name it
    checked: dict[str, int] = {}
    discrepancies: list[Discrepancy] = []
    try:
        names = evidence_files(path)
        checked["files"] = len(names)
        discrepancies += check_digests(path, names) if bundled else ()
        folder = RunFolder.open(path)
        manifest, records = folder.read_manifest(), folder.journal.records()
        results = assemble(manifest, Measurements.of(manifest.plan, records))
    except (PybenchError, *_MALFORMED) as error:
        is_closed = isinstance(error.__cause__, PermissionError)  # which accuses no run
        if is_closed or (isinstance(error, PybenchError) and not bundled and not (path / MANIFEST_FILE).exists()):
            raise
        text = str(error).replace(f"{path}/", "").replace(str(path), "the run's folder")
        discrepancies.append(Discrepancy("unreadable", path.name, text))
        return Verification(run_id=path.name, discrepancies=tuple(discrepancies), checked=checked)
    same_build = manifest.build == this_build()

    def holds_by(trusted: ExpectedTable) -> bool:
        by_trusted = replace(manifest, tables={**manifest.tables, trusted.name: trusted})
        return assemble(by_trusted, Measurements.of(manifest.plan, records)).verdict == results.verdict

    discrepancies += check_worker(folder, manifest, same_build=same_build)
    checks: dict[str, Callable[[], Iterator[Discrepancy]]] = {
        MANIFEST_FILE: lambda: check_plan(manifest, suite_file, holds_by, same_build=same_build),
        JOURNAL_FILE: lambda: check_attempts(manifest, records, results),
        RESULTS_FILE: lambda: check_results(folder, RunView.of_folder(folder, results), checked, same_build=same_build),
        "attempts": lambda: check_joules(folder.path, manifest, records, checked, same_build=same_build),
    }
    if bundled:
        checks[STATEMENT] = lambda: check_descriptions(path, names)
    for place, check in checks.items():
        try:
            discrepancies += check()
        except (PybenchError, *_MALFORMED) as error:
            if isinstance(error, PybenchError) and suite_file is not None and place == MANIFEST_FILE:
                raise
            what = f"{type(error).__name__}: {error}"
            discrepancies.append(Discrepancy("unreadable", place, f"cannot be checked: {what}"))
    return Verification(
        run_id=manifest.run_id,
        discrepancies=tuple(dict.fromkeys(discrepancies)),
        checked=checked | {"attempts": len(records)},
        verdict=results.verdict,
        other_build=None if same_build else manifest.build,
    )


def check_digests(path: Path, names: Sequence[str]) -> Iterator[Discrepancy]:
    """Equality 2: each file of a bundle has the digest that its list has, and no file is absent or added."""
    try:
        listed = parse_sums(read_below(path, SUMS, _MAX_SUMS_BYTES).decode("utf-8"))
    except (OSError, ValueError) as error:
        yield Discrepancy("digest", SUMS, f"cannot be read: {fault_text(error)}")
        return
    present = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file() and file.name != SUMS}
    held = present.union(names)
    for name in sorted(held | listed.keys()):
        if name not in held:
            yield Discrepancy("digest", name, f"listed in {SUMS}, but not in the bundle")
        elif name not in listed:
            yield Discrepancy("digest", name, f"in the bundle, but not listed in {SUMS}")
        elif digest_of(path / name) != listed[name]:
            yield Discrepancy("digest", name, f"its SHA-256 is not the one in {SUMS}: the file was edited or damaged")
    for name in sorted(present - {*names, STATEMENT, CRATE}):
        yield Discrepancy("digest", name, "no file of a run; a bundle holds nothing else")


def check_descriptions(path: Path, names: Sequence[str]) -> Iterator[Discrepancy]:
    """The statement and the crate of a bundle follow from its files."""
    for name, text in descriptions(path, {name: digest_of(path / name) for name in names}).items():
        if (path / name).is_file() and read_below(path, name, 2**26).decode("utf-8") != text:
            yield Discrepancy("digest", name, "describes other files or another verdict than the run has")


def check_worker(folder: RunFolder, manifest: Manifest, *, same_build: bool) -> Iterator[Discrepancy]:
    """The worker's source has the manifest's digest; for a run of this build also the digest of this build."""
    try:
        digest = worker_digest(folder.worker)
    except OSError as error:
        yield Discrepancy("unreadable", "worker", f"the worker's source cannot be read: {fault_text(error)}")
        return
    if digest != manifest.worker_sha256:
        yield Discrepancy("worker", "worker", "its source is not the one that the manifest names")
    elif same_build and digest != installed_digest():
        yield Discrepancy("worker", "worker", "its source is not that of this build of pybench")
    if not same_build:
        made_by = f"build {manifest.build}" if manifest.build else "a build that it does not name"
        same = "its worker is that of this build" if digest == installed_digest() else "its worker is another one"
        text = f"another build: pybench {manifest.pybench_version}, {made_by}; this is build {this_build()}; {same}"
        yield Discrepancy("build", MANIFEST_FILE, text, "not checked")


def check_attempts(manifest: Manifest, records: Sequence[Record], results: Results) -> Iterator[Discrepancy]:
    """Attempts that are owed have a record, and attempts of one boot follow one another by its monotonic clock."""
    # A stopped run claims no verdict, so it may owe attempts.
    limit_s = manifest.options.time_limit_s
    owed = (*pending(manifest.plan.points, records), *undecided(manifest.plan.points, results.rows, records))
    for point_id, number in dict.fromkeys((point.id, number) for point, number in owed):
        text = "no record; finish the run with: pybench run --resume RUN"
        if limit_s is not None:
            text = f"no record: {time_limit_text(limit_s)} may have left no time for it"
        state: DiscrepancyState = "unfinished" if limit_s is None else "not checked"
        yield Discrepancy("owed", f"{point_id}, attempt {number}", text, state)
    for record in records:
        if manifest.plan.digests.get(record.point_id) != record.point_digest:
            yield Discrepancy("plan", _label(record), "measured with settings that the plan does not have")
    measured = [record for record in records if record.ok and record.ranks and all(r.steps for r in record.ranks)]
    for earlier, later in pairwise(measured):
        steps = [[rank.steps for rank in record.ranks] for record in (earlier, later)]
        boots = [{rank.header.boot_id for rank in record.ranks} for record in (earlier, later)]
        if boots[0] == boots[1]:
            if window_ns(steps[1])[0] < window_ns(steps[0])[1]:
                yield Discrepancy("order", _label(later), f"its steps begin before those of {_label(earlier)} end")
        elif datetime.fromisoformat(later.started_utc) < datetime.fromisoformat(earlier.started_utc) - _LATER:
            text = f"began {later.started_utc} on another boot, {_label(earlier)} at {earlier.started_utc}"
            yield Discrepancy("order", _label(later), text, "not checked")


def check_results(
    folder: RunFolder, view: RunView, checked: dict[str, int], *, same_build: bool
) -> Iterator[Discrepancy]:
    """Equality 4: ``results.json`` is what this build assembles from manifest and journal.

    Another build's rules and formulas may differ: its measured values and the run's verdict are compared, no more.
    """
    computed = results_text(view)
    try:
        # Larger than any figure's other spelling would make it.
        text = read_below(folder.path, RESULTS_FILE, 4 * len(computed) + 2**20).decode("utf-8")
    except FileNotFoundError:
        text = "not there: the run was stopped before it wrote its reports"
        yield Discrepancy("owed", RESULTS_FILE, text, "unfinished")
        return
    except OSError as error:
        yield Discrepancy("unreadable", RESULTS_FILE, f"cannot be read: {fault_text(error)}")
        return

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no value of JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Readers of JSON differ on which of two values of one name counts."""
        if len(values := dict(pairs)) != len(pairs):
            raise ValueError("a name comes twice in one object")
        return values

    claimed = json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    follows = json.loads(computed)
    if not same_build:
        claimed, follows = _measured(claimed), _measured(follows)
    checked["figures"] = num_values(follows)
    state: DiscrepancyState = "does not hold" if same_build else "not checked"
    for place, difference in differences(claimed, follows):
        yield Discrepancy("results", RESULTS_FILE, f"{place}: {difference}", state)


def _measured(results: dict[str, Any]) -> dict[str, Any]:
    """The part of ``results.json`` that no rule of a build decides, and the verdict."""
    points = []
    for point in results["points"]:
        metrics = {name: {key: entry[key] for key in ("value", "medians")} for name, entry in point["metrics"].items()}
        points.append({"id": point["id"], "status": point["status"], "metrics": metrics})
    return {"verdict": results["verdict"], "points": sorted(points, key=lambda point: str(point["id"]))}


def check_joules(
    path: Path, manifest: Manifest, records: Sequence[Record], checked: dict[str, int], *, same_build: bool
) -> Iterator[Discrepancy]:
    """Equality 5: joules, bounds and GPU states of each attempt follow from its power trace."""
    points = {point.id: point for point in manifest.plan.points}
    tolerance = _ENERGY_TOLERANCE if same_build else _OTHER_BUILD_TOLERANCE
    state: DiscrepancyState = "does not hold" if same_build else "not checked"
    checked["traces"] = 0
    for record in records:
        place, point = _label(record), points.get(record.point_id)
        if record.trace is None:
            if record.energy is not None:
                yield Discrepancy("joules", place, "joules without a power trace")
            continue
        try:
            trace = read_trace(path, record.trace)
            checked["traces"] += 1
            hosts = joined_parts(path, record.hosts, trace)
            for gpu in trace.gpus:
                if gpu.sensor is not None and gpu.sensor != shipped_model(gpu.name, trace.driver):
                    model = f"the sender's sensor model ({gpu.sensor.source}), not the one that pybench comes with"
                    yield Discrepancy("sensor", place, f"{gpu.uuid}: {model}", "not checked")
            if not record.ok or point is None:
                continue
            steps = [rank.steps for rank in record.ranks]
            energies = (record.energy, joined_energy(point, steps, hosts))
            conditions = (record.conditions, joined_conditions(steps, hosts))
            claimed, follows = [
                json.loads(json.dumps({"energy": energy and asdict(energy), "conditions": [*map(asdict, states)]}))
                for energy, states in zip(energies, conditions, strict=True)
            ]
        except (PybenchError, *_MALFORMED) as error:
            text = f"{error}".replace(f"{path}/", "") or type(error).__name__
            yield Discrepancy("unreadable", place, f"its power trace cannot be used: {text}")
            continue
        pair = [] if same_build else [_widths(side) for side in (claimed, follows)]
        wide = differences(pair[0], pair[1], "bound's width in J", _OTHER_WIDTH_TOLERANCE) if pair else ()
        for where, difference in (*wide, *differences(claimed, follows, "", tolerance, common=not same_build)):
            yield Discrepancy("joules", place, f"{where}: {difference} from the power trace", state)


def _widths(attempt: Any) -> list[float | None]:  # noqa: ANN401 - a value of JSON
    """Width in J of each GPU's bound, taken out of the attempt's energy."""
    gpus = attempt["energy"]["gpus"] if attempt["energy"] else ()
    ends = [(gpu.pop("energy_low_j"), gpu.pop("energy_high_j")) for gpu in gpus]
    return [None if low is None or high is None else high - low for low, high in ends]


def differences(
    claimed: Any,  # noqa: ANN401 - a value of JSON
    computed: Any,  # noqa: ANN401 - a value of JSON
    place: str = "",
    tolerance: float = _TOLERANCE,
    *,
    common: bool = False,
) -> Iterator[tuple[str, str]]:
    """Place and text of each value that differs, or that only one side has.

    Numbers are equal within the relative ``tolerance``. With ``common``, fields that only one side has and differing
    texts are passed over: builds of pybench add fields and change words.
    """
    if isinstance(claimed, dict) and isinstance(computed, dict):
        for name in dict.fromkeys((*claimed, *computed)):
            inside = f"{place}.{name}" if place else str(name)
            if name in claimed and name in computed:
                is_word = common and name not in {"verdict", "status"} and isinstance(claimed[name], str)
                if not (is_word and isinstance(computed[name], str)):
                    yield from differences(claimed[name], computed[name], inside, tolerance, common=common)
            elif not common:
                claim = _shown(claimed[name]) if name in claimed else "nothing"
                result = _shown(computed[name]) if name in computed else "nothing"
                yield inside, f"{claim} is claimed, {result} follows"
    elif isinstance(claimed, list) and isinstance(computed, list):
        if len(claimed) != len(computed):
            yield place, f"{len(claimed)} entries are claimed, {len(computed)} follow"
        for index, (claim, entry) in enumerate(zip(claimed, computed, strict=False)):
            names = [str(entry[key]) for key in _NAMES if isinstance(entry, dict) and entry.get(key) is not None]
            yield from differences(claim, entry, f"{place}[{' '.join(names) or index}]", tolerance, common=common)
    elif not _equal(claimed, computed, tolerance):
        yield place, f"{_shown(claimed)} is claimed, {_shown(computed)} follows"


def num_values(value: Any) -> int:  # noqa: ANN401 - a value of JSON
    """Number of single values inside."""
    if isinstance(value, dict):
        return sum(map(num_values, value.values()))
    return sum(map(num_values, value)) if isinstance(value, list) else 1


def _equal(claimed: Any, computed: Any, tolerance: float) -> bool:  # noqa: ANN401 - values of JSON
    if isinstance(claimed, bool) or isinstance(computed, bool):
        return claimed is computed
    if isinstance(claimed, int | float) and isinstance(computed, int | float):
        try:
            return claimed == computed or math.isclose(claimed, computed, rel_tol=tolerance)
        except OverflowError:  # an integer above every float
            return False
    return type(claimed) is type(computed) and bool(claimed == computed)


def _shown(value: Any) -> str:  # noqa: ANN401 - a value of JSON
    text = f"{value:.10g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _label(record: Record) -> str:
    return f"{record.point_id}, attempt {record.attempt}"
