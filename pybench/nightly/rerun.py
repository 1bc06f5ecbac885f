"""A rerun of some points of a run, in a folder of its own inside the run's: it decides, and is nobody's history.

Where a reference ran other images, those run beside it, interleaved A-B-B-A by attempt on the same devices.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pybench.files.run.folder import RunFolder
from pybench.machine.environment import snapshot
from pybench.model.errors import MachineError
from pybench.model.manifest import Manifest, PlanOptions
from pybench.model.progress import Progress
from pybench.model.results import Results
from pybench.model.suite import Plan, Point
from pybench.model.text import os_text
from pybench.nightly.side_by_side import SideBySide
from pybench.run.engines.base import Launcher
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
    folder: RunFolder,
    point_ids: Collection[str],
    choose: Choose,
    progress: Progress,
    reference: Manifest | None = None,
) -> tuple[Results, Results | None]:
    """Measure points of a run again, and ``reference``'s beside them where it ran other images; returns both results.

    Raises ``MachineError`` on another machine, with other software, or where the run's image is no more, and
    ``RunFolderError`` for a folder of another user.
    """
    folder.require_owner()
    manifest, path = folder.read_manifest(), folder.path
    check_machine(path, manifest, snapshot())
    run = _prepared(folder, manifest, point_ids, choose)
    beside = reference is not None and can_run_beside(manifest, reference)
    other = _prepared(folder, _with_images(manifest, reference), point_ids, choose) if beside and reference else None
    if other is None:
        return run.finish(progress), None
    before, now = SideBySide(other, run).finish(progress)
    return now, before


def can_run_beside(manifest: Manifest, reference: Manifest) -> bool:
    """Whether a reference differs in its images, and both can be started again here."""
    if manifest.container is None or reference.container is None or not reference.container.pinned:
        return False
    return [image.id for image in manifest.container.images] != [image.id for image in reference.container.images]


def _with_images(manifest: Manifest, reference: Manifest) -> Manifest:
    """The run as it would have been in the reference's images."""
    return replace(manifest, container=reference.container, engine=reference.engine, software=reference.software)


def _prepared(run: RunFolder, manifest: Manifest, point_ids: Collection[str], choose: Choose) -> Run:
    """Check what can be checked, then make the rerun's folder."""
    points = tuple(_point(point) for point in manifest.plan.points if point.id in point_ids)
    plan = Plan(points=points, skips=())
    needs = launch_requirements(manifest.suite, plan, manifest.machine)
    launcher = choose(replace(needs, engine=manifest.engine, began=manifest.container))
    _check_images(run.path, manifest, launcher)
    _check_python(run, launcher)
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


def _point(point: Point) -> Point:
    """With as many attempts as the run had, three at least, and no more for any verdict."""
    attempts = max(point.effort.attempts, _MIN_ATTEMPTS)
    return replace(point, effort=replace(point.effort, attempts=attempts, max_attempts=attempts))


def _check_images(path: Path, manifest: Manifest, launcher: Launcher) -> None:
    began = [image.id for image in manifest.container.images] if manifest.container else []
    found = [image.id for image in launcher.container.images] if launcher.container else []
    if began != found:
        raise MachineError(f"{path}: ran in {', '.join(began) or 'no image'}, which is not what is here now")


def _check_python(folder: RunFolder, launcher: Launcher) -> None:
    """The same versions in another Python are not the same software. Raises ``MachineError``."""
    began = {record.argv[0] for record in folder.journal.records() if record.argv}
    if isinstance(launcher, Local) and (now := os_text(launcher.interpreter)) not in began:
        raise MachineError(
            f"{folder.path}: ran with {', '.join(sorted(began))}, not {now}; give that Python by --python"
        )
