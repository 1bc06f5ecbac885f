"""Suites in a real apptainer: image files by digest from a registry on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybench.cli.main import main
from pybench.files.run.folder import RunFolder
from pybench.run.engines.base import get_engine
from pybench.run.images.lock import this_platform
from pybench.run.images.registry import fetch_manifest
from tests.containers.boxed_engine import suite_text, write_training
from tests.processes import wait_for
from tests.run.two_hosts import TwoHosts, ended

REASON = get_engine("apptainer").find().reason
pytestmark = [pytest.mark.timeout(1200), pytest.mark.skipif(REASON is not None, reason=str(REASON))]


def pybench(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def options(folder: Path) -> tuple[str, ...]:
    """Of a run whose lock and runs are in ``folder``."""
    return ("--runs", str(folder / "runs"), "--engine", "apptainer", "--lock", str(folder / "images.toml"))


@pytest.fixture
def folder(registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a lock of the registry's image, a suite to write, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYBENCH_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1")
    write_lock(tmp_path, registry, fetch_manifest("skopeo", f"{registry}/pybench/test:1").digest)
    return tmp_path


def write_lock(folder: Path, registry: str, manifest: str) -> None:
    text = f"""
schema = 1

[[image]]
name = "test"
repository = "{registry}/pybench/test"
tag = "1"
backends = ["torch"]
device = "cpu"
platforms."{this_platform()}" = {{ manifest = "{manifest}" }}
"""
    (folder / "images.toml").write_text(text, encoding="utf-8")


def inside(folder: Path) -> list[str]:
    """Processes in a container of the folder's images: apptainer names the file in their environment."""
    name = f"APPTAINER_CONTAINER={folder / 'cache'}".encode()
    return [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if name in read(path)]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_suite_runs_end_to_end(folder: Path) -> None:
    """One rank and two over gloo without a network, in the file made of the locked digest; nothing is left."""
    (folder / "boxed.toml").write_text(suite_text(), encoding="utf-8")
    ran = pybench("run", folder / "boxed.toml", *options(folder))
    assert ran.exit_code == 4, ran.output  # it expects nothing
    run = RunFolder.open(next((folder / "runs").iterdir()))
    setup = run.read_manifest().container
    assert setup is not None
    (image,) = setup.images
    assert image.python == ".".join(map(str, sys.version_info[:3]))
    assert [(record.failure, record.argv[:2]) for record in run.journal.records()] == [
        (None, ("apptainer", "exec"))
    ] * 2
    assert [len(record.ranks) for record in run.journal.records()] == [1, 2]
    assert not inside(folder)
    (file,) = (folder / "cache" / "pybench" / "sif").glob("*.sif")
    made = file.stat().st_mtime_ns
    again = pybench("run", folder / "boxed.toml", *options(folder))
    assert again.exit_code == 4, again.output
    assert file.stat().st_mtime_ns == made  # made once


def test_a_false_digest_is_refused(registry: str, folder: Path) -> None:
    """The registry has no such image, and no file stays."""
    write_lock(folder, registry, "sha256:" + "0123456789abcdef" * 3 + "fedcba9876543210")
    (folder / "boxed.toml").write_text(suite_text(ranks="[1]"), encoding="utf-8")
    ran = pybench("run", folder / "boxed.toml", *options(folder))
    assert ran.exit_code == 3, ran.output
    assert "apptainer can't make an image file of" in ran.stderr
    assert not list((folder / "cache").rglob("*.sif"))


def test_the_time_limit_ends_everything_inside(folder: Path) -> None:
    """The client is killed, and with it the processes of its namespace."""
    (folder / "boxed.toml").write_text(
        suite_text(ranks="[2]").replace("time_limit_s = 240", "time_limit_s = 1"), encoding="utf-8"
    )
    ran = pybench("run", folder / "boxed.toml", *options(folder))
    (record,) = RunFolder.open(next((folder / "runs").iterdir())).journal.records()
    assert record.failure is not None, ran.output
    assert record.failure.cause == "time_limit"
    assert not inside(folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_runner_leaves_nothing(folder: Path, number: signal.Signals) -> None:
    """After SIGTERM at once; after SIGKILL when the run is resumed, which then finishes."""
    (folder / "boxed.toml").write_text(suite_text(attempts=3, ranks="[1]"), encoding="utf-8")
    command = (sys.executable, "-c", "from pybench.cli.main import main; main()", "run")
    argv = [*command, str(folder / "boxed.toml"), *options(folder)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as runner:
        wait_for(lambda: list((folder / "runs").glob("*/attempts/*.2/exchange/events.0.jsonl")))
        runner.send_signal(number)
        code = runner.wait(120)
    if number is signal.SIGTERM:
        assert code == 130
        assert not inside(folder)
        return
    (run,) = (folder / "runs").iterdir()
    lock = ("--lock", str(folder / "images.toml"))
    again = subprocess.run([*command, "--resume", str(run), *lock], capture_output=True, check=False)
    assert again.returncode == 4, again.stderr  # it expects nothing
    assert [(record.attempt, record.failure) for record in RunFolder.open(run).journal.records()] == [
        (1, None),
        (2, None),
        (3, None),
    ]
    assert not inside(folder)


def test_a_training_over_two_hosts(folder: Path) -> None:
    """Both parts run in one image file, made once; ranks meet on the network, which the suite's points share."""
    two = TwoHosts(
        folder,
        engine=("--engine", "apptainer", "--lock", str(folder / "images.toml")),
        environment={"XDG_CACHE_HOME": str(folder / "cache")},
    )
    for name in "ab":
        write_training(folder / name, 2)
    with two.host("a") as a, two.host("b") as b:
        code, out = ended(a, 600)
        assert (code, ended(b, 600)[0]) == (4, 0), out
    (record,) = two.records()
    assert record.failure is None
    assert [(part.name, part.ranks) for part in record.hosts] == [("a", (0, 1)), ("b", (1, 1))]
    images = {host.images for host in two.run.read_manifest().machines}
    assert len(images) == 1
    assert not inside(folder)
