"""A rerun of some points of a run, and what it shows of the rows that a night flagged.

A rerun has a folder of its own inside the run's, and enters no baseline. If the reference ran other images, those are
measured, too, interleaved A-B-B-A by attempt on the same devices. The two are compared: the night and the host are in
both. A rerun alone is compared with the nights: it clears bad attempts, and confirms effects of the night or the
host, too.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

from pybench.cli.progress import make_progress
from pybench.core.keys import run_figures
from pybench.core.statistics.contrast import contrast
from pybench.core.statistics.interval import as_fraction
from pybench.files.run.folder import RunFolder
from pybench.machine.environment import snapshot
from pybench.model.errors import MachineError, PybenchError
from pybench.model.figures import RunFigures
from pybench.model.manifest import Manifest, PlanOptions
from pybench.model.progress import Progress
from pybench.model.results import Results
from pybench.model.suite import Plan
from pybench.model.text import os_text, plural
from pybench.model.workloads.registry import METRICS
from pybench.nightly.history import History, Series, attempts_of
from pybench.nightly.night_look import MOST_NIGHTS_AS_FAR
from pybench.nightly.side_by_side import SideBySide
from pybench.nightly.values import BY_IMPORTANCE, Confirmation, GateResult, GateRow, overall
from pybench.run.engines.base import EngineOptions
from pybench.run.engines.choice import Choose, choose_launcher
from pybench.run.engines.environment import recorded
from pybench.run.engines.local import Local
from pybench.run.engines.stage import stage_worker, worker_digest
from pybench.run.loop import Run
from pybench.run.prepare import check_machine, check_software
from pybench.run.suite_plan import launch_requirements

FOLDER = "reruns"
_MIN_ATTEMPTS = 3
_TAIL = 0.05


def confirmed(result: GateResult, run_path: Path, past: History, series: Series, python: str | None) -> GateResult:
    """The result after a rerun of its flagged rows; as it is where none is flagged, or with the reason for no rerun."""
    rows = flagged(result)
    if not rows:
        return result
    progress = make_progress(sys.stderr)
    choose = partial(choose_launcher, EngineOptions(python=python), notify=progress.note)
    points = {row.row.point_id for row in rows}
    try:
        rerun = Rerun(RunFolder.open(run_path), points, choose, progress)
        reference = past.manifest(reference_of(series, rows))
        progress.note(f"{plural(len(rows), 'row')} flagged; measuring {plural(len(points), 'point')} again")
        again, beside = rerun.measure(reference)
    except PybenchError as error:
        return unconfirmed(result, str(error))
    metrics = {row.row.metric for row in rows}
    return confirm(result, run_figures(again, metrics), run_figures(beside, metrics) if beside else None)


@dataclass(frozen=True)
class Rerun:
    """Points of a run that are measured again, by the launchers that ``choose`` gives."""

    folder: RunFolder
    point_ids: Collection[str]
    choose: Choose
    progress: Progress

    def measure(self, reference: Manifest | None = None) -> tuple[Results, Results | None]:
        """Measure the points again, and ``reference``'s beside them where it ran other images; returns both results.

        Raises ``MachineError`` on another machine, with other software, or where the run's image is no more, and
        ``RunFolderError`` for a folder of another user.
        """
        self.folder.require_owner()
        manifest = self.folder.read_manifest()
        check_machine(self.folder.path, manifest, snapshot())
        run = self._prepared(manifest)
        if reference is None or not can_run_beside(manifest, reference):
            return run.finish(self.progress), None
        # The run as it would have been in the reference's images.
        images = {name: getattr(reference, name) for name in ("container", "engine", "software")}
        before, now = SideBySide(self._prepared(replace(manifest, **images)), run).finish(self.progress)
        return now, before

    def _prepared(self, manifest: Manifest) -> Run:
        """Check what can be checked, then make the rerun's folder. Raises ``MachineError``.

        Each point has as many attempts as the run had, three at least, and no more for any verdict.
        """
        path, points = self.folder.path, []
        for point in (point for point in manifest.plan.points if point.id in self.point_ids):
            attempts = max(point.effort.attempts, _MIN_ATTEMPTS)
            points.append(replace(point, effort=replace(point.effort, attempts=attempts, max_attempts=attempts)))
        plan = Plan(points=tuple(points), skips=())
        needs = launch_requirements(manifest.suite, plan, manifest.machine)
        launcher = self.choose(replace(needs, engine=manifest.engine, began=manifest.container))
        images, here = (
            [image.id for image in container.images] if container else []
            for container in (manifest.container, launcher.container)
        )
        if images != here:
            raise MachineError(f"{path}: ran in {', '.join(images) or 'no image'}, which is not what is here now")
        # The same versions in another Python are not the same software.
        pythons = {record.argv[0] for record in self.folder.journal.records() if record.argv}
        if isinstance(launcher, Local) and (now := os_text(launcher.interpreter)) not in pythons:
            raise MachineError(
                f"{path}: ran with {', '.join(sorted(pythons))}, not {now}; give that Python by --python"
            )
        environment = recorded(launcher.tuning(os.environ), launcher.secrets)
        check_software(path, manifest, launcher.software(), environment)
        folder = RunFolder.create(self.folder.subfolder(FOLDER), manifest.suite.name)
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


def can_run_beside(manifest: Manifest, reference: Manifest) -> bool:
    """Whether a reference differs in its images, and both can be started again here."""
    if manifest.container is None or reference.container is None or not reference.container.pinned:
        return False
    return [image.id for image in manifest.container.images] != [image.id for image in reference.container.images]


def flagged(result: GateResult) -> tuple[GateRow, ...]:
    """Rows that a rerun can confirm or clear."""
    return tuple(filter(_is_flagged, result.rows))


def _is_flagged(row: GateRow) -> bool:
    return row.state == "regressed" and row.confirmation is None


def reference_of(series: Series, rows: Sequence[GateRow]) -> RunFigures | None:
    """The newest run before any of the rows changed; ``None`` where there is none."""
    since = min((row.level_change.since for row in rows if row.level_change), default=series.last.created_utc)
    return next((run for run in reversed(series.runs[:-1]) if run.created_utc < since), None)


def confirm(result: GateResult, rerun: RunFigures, reference: RunFigures | None = None) -> GateResult:
    """Judge the flagged rows anew by a rerun, and by that of the reference's software beside it, if there is one.

    A row that the rerun did not measure stays as it is, not confirmed.
    """
    effects = result.effects
    rows = [
        _confirmed(row, _logs(rerun, row), _logs(reference, row), math.log1p(effects.of(row.row.metric)) / 2)
        if _is_flagged(row)
        else row
        for row in result.rows
    ]
    ordered = tuple(sorted(rows, key=lambda row: BY_IMPORTANCE.index(row.state)))
    return replace(result, rows=ordered, state=overall(ordered, result.host, result.unmeasured))


def unconfirmed(result: GateResult, reason: str) -> GateResult:
    """The result where no rerun was possible: flagged rows stay regressed, and the reason is there."""
    rows = tuple(replace(row, confirmation="not confirmed") if _is_flagged(row) else row for row in result.rows)
    return replace(result, rows=rows, note=f"not confirmed: {reason}" if flagged(result) else result.note)


def _logs(run: RunFigures | None, row: GateRow) -> tuple[float, ...]:
    """Logarithms of a row's attempts, higher is better; empty where the run did not measure it."""
    points = (point for point in run.points if point.id == row.row.point_id) if run else ()
    return next((attempts_of(point, row.row.metric) for point in points), ())


def _confirmed(row: GateRow, now: Sequence[float], before: Sequence[float], half: float) -> GateRow:
    """A flagged row by the attempts of its rerun; ``half`` is half of the smallest effect, a logarithm."""
    if not now or row.before is None:
        return replace(row, confirmation="not confirmed", reason="the rerun did not measure it")
    sign = METRICS[row.row.metric].sign
    confirmation: Confirmation = "not confirmed"
    if before:
        between = contrast([now], [before])
        deviation = between.value if between else median(now) - median(before)
        is_there = between is not None and between.p_below(0.0) <= _TAIL
        beside = "beside the reference's software a rerun shows"
    else:
        deviation = median(now) - sign * math.log(row.before)
        # At least half of the change is there again.
        is_there = deviation <= -max(abs(math.log1p(row.fraction or 0.0)) / 2, half)
        beside = "a rerun shows"
    if deviation > -half:
        confirmation = "cleared"
    elif is_there:
        confirmation = "confirmed"
    reason = f"{beside} {100 * as_fraction(sign * deviation):+.1f} %"
    state = row.state if confirmation == "confirmed" else "pass" if confirmation == "cleared" else "undecided"
    num, of_nights = row.nights_as_far
    if confirmation == "confirmed" and not before and num >= max(MOST_NIGHTS_AS_FAR * of_nights, 1):
        state = "undecided"
        reason += f"; {row.as_far_text}: the next night decides"
    return replace(row, state=state, confirmation=confirmation, reason="; ".join(filter(None, (row.reason, reason))))
