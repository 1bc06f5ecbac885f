"""Everything that a run's files claim, worked out again from its journal and traces with this version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

from pybench.core.assemble import assemble
from pybench.core.measurements import Measurements
from pybench.evidence.attempts import (
    attempt_label,
    check_completeness,
    check_order,
    check_places,
    without_record,
)
from pybench.evidence.contents import SUMS, evidence_files, parse_sums, wrong_digests
from pybench.evidence.events import check_events
from pybench.evidence.machine import check_machine
from pybench.evidence.malformed import MALFORMED, guarded
from pybench.evidence.origin import check_origin, check_worker
from pybench.evidence.packages import without_packages
from pybench.evidence.plan import check_plan
from pybench.evidence.reports import check_reports, has_reports
from pybench.evidence.traces import check_presence, check_sensors, check_trace
from pybench.evidence.values import Discrepancy, Verification
from pybench.files.model_shapes import load_models
from pybench.files.run.folder import RunFolder, attempt_name
from pybench.files.safe_folder import read_below
from pybench.model.errors import PybenchError
from pybench.model.manifest import MANIFEST_FILE, Manifest
from pybench.model.record import JOURNAL_FILE, Record
from pybench.model.verdict import Verdict
from pybench.power.sensor_models import shipped_model
from pybench.report.formats import REPORT_FILES
from pybench.report.run.view import RunView
from pybench.run.host_parts import joined_parts

# Of as many files as a bundle may have, with the longest names that runs give them, 6 MB.
_MAX_SUMS_BYTES = 2**23
_UNDECIDED: frozenset[Verdict] = frozenset({"error", "missing", "inconclusive", "no_expectation"})


def verify_folder(path: Path, suite_file: Path | None = None, *, bundled: bool = False) -> Verification:
    """Verify the run in ``path``; ``suite_file`` is a suite to trust in place of the one that pybench comes with.

    With ``bundled`` the folder was unpacked from a bundle, and has its list of digests. Raises ``RunFolderError`` where
    there is no run, and ``FileError`` for a suite file that can't be read; whatever else is wrong is a discrepancy.
    """
    path = path.resolve()  # as errors below name it
    checked: dict[str, int] = {}
    found: list[Discrepancy] = []
    try:
        names = evidence_files(path, REPORT_FILES.values())
        checked["files"] = len(names)
        found += _digests(path, names) if bundled else ()
        folder = RunFolder.open(path)
        manifest, records = folder.read_manifest(), folder.journal.records()
    except PybenchError as error:
        if not bundled and not (path / MANIFEST_FILE).exists():
            raise
        text = str(error).replace(f"{path}/", "").replace(str(path), "the run's folder")
        return Verification(run_id=path.name, discrepancies=(*found, Discrepancy(place=path.name, text=text)))
    other_version = None if manifest.pybench_version == version("pybench") else manifest.pybench_version
    same_version = other_version is None
    try:
        results = assemble(manifest, Measurements.of(manifest.plan, records))
    except MALFORMED as error:
        found.append(Discrepancy(place=JOURNAL_FILE, text=f"cannot be judged: {type(error).__name__}: {error}"))
        return Verification(
            run_id=manifest.run_id, discrepancies=tuple(found), checked=checked, other_version=other_version
        )
    view = RunView(results=results, manifest=manifest, records=records, path=folder.path)
    # A run that was stopped has no report, or claims neither a pass nor a failure.
    unfinished = results.verdict in _UNDECIDED or not has_reports(folder.path)
    found += check_reports(folder, view, checked)
    found += guarded(MANIFEST_FILE, check_machine(manifest, same_version=same_version))
    found += guarded(MANIFEST_FILE, check_origin(manifest, suite_file))
    found += guarded(MANIFEST_FILE, check_plan(manifest, load_models(), without_packages, same_version=same_version))
    found += check_worker(folder, manifest)
    found += guarded(JOURNAL_FILE, check_completeness(manifest, records, results, unfinished=unfinished))
    found += guarded(JOURNAL_FILE, check_order(manifest, records))
    found += guarded(JOURNAL_FILE, check_places(manifest, records))
    found += guarded("attempts", _attempt_folders(names, manifest, records, unfinished=unfinished))
    found += guarded("attempts", check_events(folder.path, manifest, records))
    found += _traces(view, manifest, checked)
    checked["attempts"] = len(records)
    return Verification(
        run_id=manifest.run_id,
        discrepancies=tuple(dict.fromkeys(found)),
        checked=checked,
        verdict=results.verdict,
        other_version=other_version,
    )


def _digests(path: Path, names: Sequence[str]) -> Iterator[Discrepancy]:
    try:
        listed = parse_sums(read_below(path, SUMS, _MAX_SUMS_BYTES).decode("utf-8"))
    except FileNotFoundError:
        yield Discrepancy(place=SUMS, text="not in the bundle: nothing shows that its files are whole")
        return
    except OSError as error:
        yield Discrepancy(place=SUMS, text=f"cannot be read: {error.strerror}")
        return
    except ValueError as error:
        yield Discrepancy(place=SUMS, text=str(error))
        return
    present = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file() and file.name != SUMS]
    for name, fault in wrong_digests(path, (*names, *present), listed):
        yield Discrepancy(place=name, text=fault)
    for name in sorted(set(present) - set(names)):
        yield Discrepancy(place=name, text="no file of a run; a bundle holds nothing else")


def _attempt_folders(
    names: Sequence[str], manifest: Manifest, records: Sequence[Record], *, unfinished: bool
) -> Iterator[Discrepancy]:
    """Every attempt that left a folder is recorded."""
    present = {name.split("/")[1] for name in names if name.startswith("attempts/") and name.count("/") > 1}
    for name in sorted(present - {attempt_name(record.point_id, record.attempt) for record in records}):
        text = "an attempt that left files here has no record"
        yield without_record(manifest, f"attempts/{name}", text, unfinished=unfinished)


def _traces(view: RunView, manifest: Manifest, checked: dict[str, int]) -> Iterator[Discrepancy]:
    points = {point.id: point for point in manifest.plan.points}
    checked["traces"] = 0
    for record in view.records:
        yield from check_presence(manifest, record)
        point = points.get(record.point_id)
        if record.trace is None or point is None:
            continue
        try:
            trace = view.trace(record.trace)
            if trace is not None:
                checked["traces"] += 1
                hosts = joined_parts(view.path or Path(), record.hosts, trace)
                yield from check_trace(manifest, point, record, hosts)
                yield from check_sensors(record, trace, shipped_model)
        except PybenchError as error:
            text = str(error).replace(f"{view.path}/", "")
            yield Discrepancy(place=attempt_label(record), text=text)
        except MALFORMED as error:
            text = f"its power trace cannot be read: {type(error).__name__}: {error}"
            yield Discrepancy(place=attempt_label(record), text=text)
