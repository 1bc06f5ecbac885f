"""A suite in containers, end to end, with the real backend; and images that must not start."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main
from pybench.cli.progress import PlainProgress
from pybench.files.run.folder import RunFolder
from pybench.model.container import ContainerRequest
from pybench.model.errors import MachineError
from pybench.run.engines.base import EngineOptions, LaunchRequirements
from pybench.run.engines.choice import choose_launcher
from pybench.run.engines.oci.images import with_algorithm
from pybench.run.engines.oci.launcher import OciLauncher
from pybench.run.prepare import prepare_run
from tests.builders import NO_DRIVER
from tests.containers.boxed_engine import TAG, Boxed, lock_text, quick_packages, suite_text

pytestmark = pytest.mark.timeout(1200)  # another session may have the engines first


@pytest.fixture(autouse=True)
def _cpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1")


def run(boxed: Boxed, folder: Path, suite: str, *options: str) -> Result:
    (folder / "boxed.toml").write_text(suite, encoding="utf-8")
    arguments = ["run", str(folder / "boxed.toml"), "--runs", str(folder / "runs"), "--engine", boxed.name, *options]
    return CliRunner().invoke(main, arguments)


def only_run(folder: Path) -> RunFolder:
    (path,) = (folder / "runs").iterdir()
    return RunFolder.open(path)


@dataclass(frozen=True)
class Ran:
    """A run that is over: what was printed, its folder, and containers that were there afterwards."""

    result: Result
    folder: RunFolder
    left: list[str]


@pytest.fixture(scope="module")
def ran(boxed: Boxed, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Three points of two ranks of the real torch, over gloo without a network."""
    folder = tmp_path_factory.mktemp("ran")
    suite = suite_text(ranks="[2]").replace("batch_size = 1\n", "") + "batch_size = [1, 2, 3]\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*NO_DRIVER)
        result = run(boxed, folder, suite, "--lock", str(boxed.lock))
    return Ran(result, only_run(folder), boxed.containers())


def test_a_suite_runs_end_to_end(boxed: Boxed, ran: Ran) -> None:
    """Measured, on record, and nothing left."""
    assert ran.result.exit_code == 4, ran.result.output  # it expects nothing
    assert f"in {boxed.name} " in " ".join(ran.result.output.split())
    setup = ran.folder.read_manifest().container
    assert setup is not None
    assert setup.engine == boxed.name
    assert setup.pinned
    (image,) = setup.images
    assert image.id == boxed.image_id
    assert image.labels == {"org.opencontainers.image.title": "pybench-test"}
    records = ran.folder.journal.records()
    assert [record.failure for record in records] == [None] * 3
    for record in records:
        assert record.energy is None
        assert record.container is not None
        assert record.container.image_id == boxed.image_id
        assert record.container.start_s is not None
        if not record.warm_after:
            assert record.startup_s is not None
            assert record.container.start_s < record.startup_s
        assert all(rank.header.packages["torch"] for rank in record.ranks)
        assert all(rank.header.python == image.python for rank in record.ranks)
    assert not ran.left
    assert not list(ran.folder.path.rglob("environment"))


def test_points_that_share_a_process_share_its_container(ran: Ran) -> None:
    """The host's word to go on reaches the worker inside; what ran is read back while it waits, and at its end."""
    records = ran.folder.journal.records()
    assert [len(record.warm_after) for record in records] == [0, 1, 2]
    found = [record.container for record in records if record.container]
    assert len({container.id for container in found}) == 1
    assert [container.exit_code for container in found] == [None, None, 0]


def test_a_false_digest_is_refused_before_anything_starts(boxed: Boxed, tmp_path: Path) -> None:
    """Although the tag that the lock names is right here, and names another image."""
    false = "sha256:" + "0123456789abcdef" * 3 + "fedcba9876543210"
    (tmp_path / "images.toml").write_text(lock_text(false), encoding="utf-8")
    result = run(boxed, tmp_path, suite_text(), "--lock", str(tmp_path / "images.toml"))
    assert result.exit_code == 3
    assert "has no image test by its locked digest" in result.output
    assert f"its tag 1 is here, but names {boxed.image_id}" in result.output
    assert not (tmp_path / "runs").exists()


def test_a_retagged_image_changes_nothing(boxed: Boxed) -> None:
    """The tag is moved to another image; what the digest names is what runs."""
    subprocess.run([boxed.name, "import", "-", TAG], input=bytes(10240), capture_output=True, check=True)
    described = subprocess.run([boxed.name, "image", "inspect", TAG], capture_output=True, check=True).stdout
    other = json.loads(described)[0]["Id"]
    try:
        assert other not in boxed.image_id
        (image,) = boxed.launcher().container.images
        assert image.id == boxed.image_id
    finally:
        subprocess.run([boxed.name, "tag", boxed.image_id, TAG], check=True)
        subprocess.run([boxed.name, "image", "rm", "--force", other], capture_output=True, check=True)


def test_another_image_that_ran_is_found_out(boxed: Boxed, launcher: OciLauncher, tmp_path: Path) -> None:
    """The engine's report of the container is compared with the request, for every launcher."""
    (image,) = launcher.container.images
    moved = replace(launcher, container=replace(launcher.container, images=(replace(image, id=TAG),)))
    (tmp_path / "boxed.toml").write_text(suite_text(packages=quick_packages(tmp_path), ranks="[1]"), encoding="utf-8")
    suite, runs = tmp_path / "boxed.toml", tmp_path / "runs"
    prepared = prepare_run(suite, runs, lambda _asked: moved)
    prepared.finish(PlainProgress(io.StringIO()))
    (record,) = prepared.folder.journal.records()
    assert record.failure is not None
    assert record.failure.cause == "identity"
    assert record.failure.message == f"image {boxed.image_id} ran, expected {TAG} (test)"


def test_a_gpu_that_no_container_gets(boxed: Boxed) -> None:
    """Found out when the image is first started, not by every attempt."""
    needs = LaunchRequirements(
        backends=("torch",), device="cpu", request=ContainerRequest(), gpu_uuids=("GPU-of-nobody",)
    )
    options = EngineOptions(engine=boxed.name, lock=boxed.lock)
    with pytest.raises(MachineError, match=r"can't (start a worker in image test|be given GPU 'GPU-of-nobody'): .*; "):
        choose_launcher(options, needs, print)
    assert not boxed.containers()


def test_a_python_that_the_user_inside_cant_execute_comes_with_a_remedy(boxed: Boxed, tmp_path: Path) -> None:
    """Here a folder stands in its place; an image whose root folder is closed gives the same complaint."""
    lock = tmp_path / "images.toml"
    lock.write_text(boxed.lock.read_text().replace('device = "cpu"', 'device = "cpu"\ninterpreter = "/tmp"'))
    needs = LaunchRequirements(backends=("torch",), device="cpu", request=ContainerRequest())
    with pytest.raises(MachineError, match=r"in image test: .*; let all users reach /tmp in the image, or set relax"):
        choose_launcher(EngineOptions(engine=boxed.name, lock=lock), needs, print)


def test_an_unlocked_image_is_refused_and_with_leave_never_passes(boxed: Boxed, tmp_path: Path) -> None:
    """A tag can mean anything tomorrow."""
    options = ("--lock", str(boxed.lock), "--image", TAG)
    refused = run(boxed, tmp_path, suite_text(), *options)
    assert refused.exit_code == 2
    assert "--allow-unpinned" in refused.output
    suite = (
        suite_text(packages=quick_packages(tmp_path), ranks="[1]")
        + '\n[[benchmark.expect]]\nmetric = "step_s"\nminimum = 0.0\n'
    )
    suite = suite.replace("attempts = 1", "attempts = 2")
    allowed = run(boxed, tmp_path, suite, *options, "--allow-unpinned")
    assert allowed.exit_code == 4, allowed.output
    said = " ".join(allowed.output.split())
    assert "isn't pinned" in said
    assert "unpinned image" in said


@pytest.mark.parametrize(
    ("container", "says"),
    [
        ('mounts = [{ source = "/opt/../etc", target = "/x" }]', "no . or .."),
        ('mounts = [{ source = "/opt", target = "/x,readonly=false" }]', "only letters"),
        ('mounts = [{ source = "/opt:/etc", target = "/x" }]', "only letters"),
        ('mounts = [{ source = "/var/run/docker.sock", target = "/x" }]', "belongs to the host"),
        ('mounts = [{ source = "/opt", target = "/pybench/stage" }]', "is taken"),
        ('environment = { "A=B" = "c" }', "variable's name"),
        ('environment = { A = "b\\nLD_PRELOAD=/x" }', "one line"),
        ('environment = { CUDA_VISIBLE_DEVICES = "0" }', "CUDA_VISIBLE_DEVICES is set by pybench"),
        ('image = "$(id)"', "image"),
        ('image = "--privileged"', "image"),
        ('relax = ["privileged"]', "writable_root"),
    ],
)
def test_a_hostile_suite_is_refused(boxed: Boxed, tmp_path: Path, container: str, says: str) -> None:
    """With exit code 2, its place in the file, and nothing started."""
    suite = suite_text(container)
    if container.startswith("mounts"):
        suite = "\n".join(line for line in suite.splitlines() if "site-packages" not in line)
    result = run(boxed, tmp_path, suite, "--lock", str(boxed.lock))
    assert result.exit_code == 2, result.output
    assert says in result.output
    assert "boxed.toml:" in result.output
    assert not (tmp_path / "runs").exists()
    assert not boxed.containers()


@pytest.fixture
def other_image(boxed: Boxed) -> Iterator[str]:
    """Id of an image with equal content under another digest."""
    started = [boxed.name, "create", TAG, "true"]
    container = subprocess.run(started, capture_output=True, text=True, check=True).stdout.strip()
    commit = [boxed.name, "commit", "--change", "LABEL stack=other", container]
    try:
        image = subprocess.run(commit, capture_output=True, text=True, check=True).stdout.split()[-1]
    finally:
        subprocess.run([boxed.name, "rm", container], capture_output=True, check=True)
    yield with_algorithm(image)
    subprocess.run([boxed.name, "image", "rm", "--force", image], capture_output=True, check=True)


@pytest.mark.parametrize("boxed", ["podman"], indirect=True)
def test_two_images_are_measured_in_turn_and_compared(boxed: Boxed, other_image: str, tmp_path: Path) -> None:
    """Each attempt in the image of its run, by its locked digest; rows are judged although the images differ."""
    lock = tmp_path / "images.toml"
    text = lock_text(boxed.image_id, "old") + lock_text(other_image, "new").replace("schema = 1", "")
    lock.write_text(text, encoding="utf-8")
    suite = suite_text(packages=quick_packages(tmp_path), ranks="[1]")
    result = run(boxed, tmp_path, suite, "--lock", str(lock), "--ab", "old", "new")
    assert result.exit_code in {0, 1, 4}, result.output
    folders = {read.path: read for read in map(RunFolder.open, sorted((tmp_path / "runs").iterdir()))}
    found = {}
    for name in "AB":
        (line,) = [line for line in result.output.splitlines() if line.startswith(f"{name}: ")]
        found[name] = folders.pop(Path(line.rpartition(" ")[2]))
    assert not folders
    setups = {name: folder.read_manifest().container for name, folder in found.items()}
    images = {name: setup.images[0].id for name, setup in setups.items() if setup}
    assert images == {"A": boxed.image_id, "B": other_image}
    attempts = sorted(
        (record.started_utc, name) for name, folder in found.items() for record in folder.journal.records()
    )
    assert [name for _, name in attempts] == ["A", "B"]
    for name, folder in found.items():
        for record in folder.journal.records():
            assert record.failure is None
            assert record.container is not None
            assert record.container.image_id == images[name]
    assert "across: image:" in result.output
    assert "incomparable" not in result.output
    assert "verdict: " in result.output
    assert not boxed.containers()
