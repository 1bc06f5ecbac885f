"""Points of a run measured again, alone and beside a reference's image."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pybench.files.run.folder import RunFolder
from pybench.model.container import ContainerSetup
from pybench.model.errors import MachineError, RunFolderError
from pybench.model.figures import RunFigures
from pybench.model.manifest import Manifest
from pybench.model.progress import Progress
from pybench.nightly.history import History
from pybench.nightly.rerun import FOLDER, Rerun, can_run_beside
from pybench.run.engines.base import Launch, LaunchRequirements
from pybench.run.loop import Run
from pybench.run.prepare import prepare_run
from tests.builders import IMAGE
from tests.run.drill import suite_text, table_text
from tests.run.fake_launcher import FakeLauncher

POINT = "decode[tensor_parallel=2]"
Planned = Callable[[Callable[[LaunchRequirements], "Boxed"]], Run]


def setup(image: str, *, pinned: bool = True) -> ContainerSetup:
    """One image by its id."""
    identity = replace(IMAGE, reference=image, id=image, platform="", interpreter="", entrypoint="keep", pinned=pinned)
    return ContainerSetup(
        engine="docker",
        engine_version=None,
        runtime=None,
        rootless=False,
        lock="",
        images=(identity,),
        mounts=(),
        relaxations=(),
    )


class Boxed(FakeLauncher):
    """Calls itself a container of some image; the worker runs beside us all the same."""

    def __init__(self, image: str) -> None:
        super().__init__()
        object.__setattr__(self, "container", setup(image))
        object.__setattr__(self, "compiled", [])

    def environment(self, job: Launch) -> dict[str, str]:
        held = list(job.compiled.iterdir()) if job.compiled else None
        self.compiled.append((job.compiled, held))  # type: ignore[attr-defined]
        return super().environment(job)


def boxed(needs: LaunchRequirements) -> Boxed:
    """The image that a run began with, else the new one."""
    return Boxed(needs.began.images[0].id if needs.began else "new")


@pytest.fixture
def planned(tmp_path: Path, no_driver: None) -> Planned:
    """Makes a run, with nothing measured yet, from the function that chooses its launcher."""
    del no_driver
    (tmp_path / "expected").mkdir()
    (tmp_path / "expected" / "drill.toml").write_text(table_text())
    (tmp_path / "drill.toml").write_text(suite_text(max_attempts=3, time_limit_s=60))
    return partial(prepare_run, tmp_path / "drill.toml", tmp_path / "runs")


@pytest.fixture
def run(planned: Planned) -> RunFolder:
    """A finished run in the image ``new``."""
    made = planned(boxed)
    made.finish(Progress())
    return made.folder


def reruns(run: RunFolder) -> list[RunFolder]:
    return [RunFolder.open(path) for path in sorted((run.path / FOLDER).iterdir())]


def test_a_point_alone_is_measured_three_times(run: RunFolder) -> None:
    """In a folder inside the run's; the run's own records stay as they are."""
    before = run.journal.records()
    again, beside = Rerun(run, {POINT}, boxed, Progress()).measure()
    assert beside is None
    assert [(point.id, point.attempts) for point in again.points] == [(POINT, 3)]
    (made,) = reruns(run)
    assert [(record.point_id, record.attempt) for record in made.journal.records()] == [
        (POINT, 1),
        (POINT, 2),
        (POINT, 3),
    ]
    assert run.journal.records() == before


def test_workers_in_images_share_what_they_compile_while_the_run_lasts(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder goes, and so do a killed runner's files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "pybench-compiled-of-a-killed-runner"
    left.mkdir()
    os.utime(left, (0, 0))
    launcher = Boxed("new")
    planned(lambda _needs: launcher).finish(Progress())
    seen = launcher.compiled  # type: ignore[attr-defined]
    assert len(seen) >= 3
    path, _ = seen[0]
    assert (path.name, path.parent.parent) == ("torch", tmp_path)
    assert all(found == (path, []) for found in seen)
    assert list(tmp_path.glob("pybench-compiled-*")) == []


def test_the_references_image_runs_beside_it_in_turn(run: RunFolder) -> None:
    """A-B-B-A by attempt, each in its own folder."""
    reference = replace(run.read_manifest(), container=setup("old"))
    again, beside = Rerun(run, {POINT}, boxed, Progress()).measure(reference)
    assert beside is not None
    assert [point.attempts for point in (*again.points, *beside.points)] == [3, 3]
    images = {made.read_manifest().container.images[0].id: made.journal.records() for made in reruns(run)}  # type: ignore[union-attr]
    assert images.keys() == {"old", "new"}
    made = [(record.ranks[0].steps[0].start_ns, name) for name, records in images.items() for record in records]
    assert [name for _, name in sorted(made)] == ["old", "new", "new", "old", "old", "new"]


def test_only_another_pinned_image_runs_beside(run: RunFolder) -> None:
    """The same image shows nothing, an image without a digest may be another today, and no image is no image."""
    manifest = run.read_manifest()

    def beside(container: ContainerSetup | None) -> bool:
        other: Manifest = replace(manifest, container=container)
        return can_run_beside(manifest, other)

    assert beside(setup("old"))
    assert not beside(setup("new"))
    assert not beside(setup("old", pinned=False))
    assert not beside(None)


def test_an_image_that_is_no_more_is_refused(run: RunFolder) -> None:
    """Nothing is measured."""
    with pytest.raises(MachineError, match="ran in new, which is not what is here now"):
        Rerun(run, {POINT}, lambda _needs: Boxed("other"), Progress()).measure()
    assert not (run.path / FOLDER).exists()


def test_another_users_run_is_refused(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is theirs to prepare."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(RunFolderError, match="belongs to another user"):
        Rerun(run, {POINT}, boxed, Progress()).measure()


def test_a_link_in_the_place_of_reruns_is_refused(run: RunFolder, tmp_path: Path) -> None:
    """Nothing is written where it leads."""
    (tmp_path / "victim").mkdir()
    (run.path / FOLDER).symlink_to(tmp_path / "victim")
    with pytest.raises(RunFolderError, match=r"reruns: cannot make a folder in the run's: Not a directory"):
        Rerun(run, {POINT}, boxed, Progress()).measure()
    assert list((tmp_path / "victim").iterdir()) == []


def test_another_users_reference_names_no_image(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history may have nights of anybody: what they name is not started."""
    night = RunFigures(run_id="night", created_utc="", suite="s", verdict="pass", keys={}, points=())
    history = History(folder=run.path.parent, runs=(night,), entries={night.identity: run.path.name})
    assert history.manifest(night) == run.read_manifest()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert history.manifest(night) is None
