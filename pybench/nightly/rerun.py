"""A rerun of some points of a run, and what it shows of the rows that a night flagged.

A rerun has a folder of its own inside the run's, and enters no baseline. If the reference ran other images, those are
measured, too, interleaved A-B-B-A by attempt on the same devices. The two are compared: the night and the host are in
both. A rerun alone is compared with the nights: it clears bad attempts, and confirms effects of the night or the
host, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median

from pybench.core.statistics.contrast import contrast
from pybench.core.statistics.interval import as_fraction
from pybench.files.run.folder import RunFolder
from pybench.machine.environment import snapshot
from pybench.model.errors import MachineError
from pybench.model.figures import RunFigures
from pybench.model.manifest import Manifest, PlanOptions
from pybench.model.progress import Progress
from pybench.model.results import Results
from pybench.model.suite import Plan
from pybench.model.text import os_text
from pybench.model.workloads.registry import METRICS
from pybench.nightly.history import Series, attempts_of
from pybench.nightly.night_look import MOST_NIGHTS_AS_FAR
from pybench.nightly.side_by_side import SideBySide
from pybench.nightly.values import BY_IMPORTANCE, Confirmation, GateResult, GateRow, overall
from pybench.run.engines.choice import Choose
from pybench.run.engines.environment import recorded
from pybench.run.engines.local import Local
from pybench.run.engines.stage import stage_worker, worker_digest
from pybench.run.loop import Run
from pybench.run.resume import check_machine, check_software
from pybench.run.suite_plan import launch_requirements

FOLDER = "reruns"
_MIN_ATTEMPTS = 3


def rerun(
    folder: RunFolder, point_ids: Collection[str], choose: Choose, progress: Progress, reference: Manifest | None = None
) -> tuple[Results, Results | None]:
    """Measure points of a run again, and ``reference``'s beside them where it ran other images; returns both results.

    Raises ``MachineError`` on another machine, with other software, or where the run's image is no more, and
    ``RunFolderError`` for a folder of another user.
    """
    folder.require_owner()
    manifest, path = folder.read_manifest(), folder.path
    check_machine(path, manifest, snapshot())
    run = _prepared(folder, manifest, point_ids, choose)
    if reference is None or not can_run_beside(manifest, reference):
        return run.finish(progress), None
    # The run as it would have been in the reference's images.
    images = {name: getattr(reference, name) for name in ("container", "engine", "software")}
    other = _prepared(folder, replace(manifest, **images), point_ids, choose)
    before, now = SideBySide(other, run).finish(progress)
    return now, before


def can_run_beside(manifest: Manifest, reference: Manifest) -> bool:
    """Whether a reference differs in its images, and both can be started again here."""
    if manifest.container is None or reference.container is None or not reference.container.pinned:
        return False
    return [image.id for image in manifest.container.images] != [image.id for image in reference.container.images]


def _prepared(run: RunFolder, manifest: Manifest, point_ids: Collection[str], choose: Choose) -> Run:
    """Check what can be checked, then make the rerun's folder. Raises ``MachineError``.

    Each point has as many attempts as the run had, three at least, and no more for any verdict.
    """
    points = []
    for point in (point for point in manifest.plan.points if point.id in point_ids):
        attempts = max(point.effort.attempts, _MIN_ATTEMPTS)
        points.append(replace(point, effort=replace(point.effort, attempts=attempts, max_attempts=attempts)))
    plan = Plan(points=tuple(points), skips=())
    needs = launch_requirements(manifest.suite, plan, manifest.machine)
    launcher = choose(replace(needs, engine=manifest.engine, began=manifest.container))
    images, here = (
        [image.id for image in container.images] if container else []
        for container in (manifest.container, launcher.container)
    )
    if images != here:
        raise MachineError(f"{run.path}: ran in {', '.join(images) or 'no image'}, which is not what is here now")
    # The same versions in another Python are not the same software.
    pythons = {record.argv[0] for record in run.journal.records() if record.argv}
    if isinstance(launcher, Local) and (now := os_text(launcher.interpreter)) not in pythons:
        raise MachineError(
            f"{run.path}: ran with {', '.join(sorted(pythons))}, not {now}; give that Python by --python"
        )
    environment = recorded(launcher.tuning(os.environ), launcher.secrets)
    check_software(run.path, manifest, launcher.software(), environment)
    folder = RunFolder.create(run.subfolder(FOLDER), manifest.suite.name)
    stage_worker(folder.worker)
    again = replace(
        manifest,
        run_id=folder.run_id,
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        plan=plan,
        options=PlanOptions(profile=manifest.options.profile),
        worker_sha256=worker_digest(folder.worker),
        container=launcher.container,
    )
    folder.write_manifest(again)
    return Run(folder=folder, manifest=again, launcher=launcher, is_new=True)


_TAIL = 0.05


@dataclass(frozen=True)
class Rerun:
    """Figures of a rerun, and of the reference's software beside it where that was rerun."""

    run: RunFigures
    reference: RunFigures | None = None


def flagged(result: GateResult) -> tuple[GateRow, ...]:
    """Rows that a rerun can confirm or clear."""
    return tuple(row for row in result.rows if row.state == "regressed" and row.confirmation is None)


def reference_of(series: Series, rows: Sequence[GateRow]) -> RunFigures | None:
    """The newest run before any of the rows changed; ``None`` where there is none."""
    since = min((row.level_change.since for row in rows if row.level_change), default=series.last.created_utc)
    return next((run for run in reversed(series.runs[:-1]) if run.created_utc < since), None)


def confirm(result: GateResult, rerun: Rerun) -> GateResult:
    """Judge the flagged rows anew. A row that the rerun did not measure stays as it is, not confirmed."""
    chosen = {row.row for row in flagged(result)}
    rows = [
        _confirmed(row, rerun, result.effects.of(row.row.metric)) if row.row in chosen else row for row in result.rows
    ]
    ordered = tuple(sorted(rows, key=lambda row: BY_IMPORTANCE.index(row.state)))
    return replace(result, rows=ordered, state=overall(ordered, result.host, result.unmeasured))


def unconfirmed(result: GateResult, reason: str) -> GateResult:
    """The result where no rerun was possible: flagged rows stay regressed, and the reason is there."""
    chosen = {row.row for row in flagged(result)}
    rows = tuple(replace(row, confirmation="not confirmed") if row.row in chosen else row for row in result.rows)
    return replace(result, rows=rows, note=f"not confirmed: {reason}" if chosen else result.note)


def _confirmed(row: GateRow, rerun: Rerun, smallest: float) -> GateRow:
    now = _logs(rerun.run, row)
    if not now or row.before is None:
        return replace(row, confirmation="not confirmed", reason="the rerun did not measure it")
    before = _logs(rerun.reference, row) if rerun.reference else ()
    if before:
        found, deviation = _beside(now, before, smallest)
        beside = "beside the reference's software a rerun shows"
    else:
        deviation = median(now) - METRICS[row.row.metric].sign * math.log(row.before)
        found = _alone(deviation, abs(math.log1p(row.fraction or 0.0)), smallest)
        beside = "a rerun shows"
    reason = f"{beside} {100 * as_fraction(METRICS[row.row.metric].sign * deviation):+.1f} %"
    state = row.state if found == "confirmed" else "pass" if found == "cleared" else "undecided"
    num, of_nights = row.nights_as_far
    if found == "confirmed" and not before and num >= max(MOST_NIGHTS_AS_FAR * of_nights, 1):
        state = "undecided"
        reason += f"; {row.as_far_text}: the next night decides"
    return replace(row, state=state, confirmation=found, reason="; ".join(filter(None, (row.reason, reason))))


def _alone(deviation: float, effect: float, smallest: float) -> Confirmation:
    """Confirmed where at least half of the change is there again."""
    half = math.log1p(smallest) / 2
    if deviation > -half:
        return "cleared"
    return "confirmed" if deviation <= -max(effect / 2, half) else "not confirmed"


def _beside(now: Sequence[float], before: Sequence[float], smallest: float) -> tuple[Confirmation, float]:
    half = math.log1p(smallest) / 2
    found = contrast([now], [before])
    deviation = found.value if found else median(now) - median(before)
    if deviation > -half:
        return "cleared", deviation
    is_sure = found is not None and found.p_below(0.0) <= _TAIL
    return "confirmed" if is_sure else "not confirmed", deviation


def _logs(run: RunFigures, row: GateRow) -> tuple[float, ...]:
    """Turned so that higher is better."""
    point = next((one for one in run.points if one.id == row.row.point_id), None)
    return attempts_of(point, row.row.metric) if point else ()
