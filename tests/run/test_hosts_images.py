"""Runs over two hosts in images: made once where hosts share a cache, and the same ones on both.

Apptainer and enroot are stand-ins, which run the worker on this machine.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pybench.run.engines.image_launcher import file_digest
from tests.builders import image_lock_text
from tests.processes import wait_for
from tests.programs import shell_program
from tests.run.engines.apptainer_host import install_apptainer
from tests.run.engines.enroot_host import IMAGE, EnrootHost, digest_of, lock_text
from tests.run.two_hosts import LIMIT_S, TwoHosts, ended


def _lock(two: TwoHosts, name: str, digest: str) -> None:
    (two.folder / name / "images.toml").write_text(image_lock_text(digest))


def _install(two: TwoHosts, name: str) -> str:
    """Put the stand-in on a host; gives its PATH."""
    folder = two.folder / name / "bin"
    folder.mkdir()
    install_apptainer(folder, two.folder / name / "python", two.folder / name / "log")
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def two(tmp_path: Path, warm_pybench: Path) -> TwoHosts:
    """Hosts that share a cache of image files and have the same lock."""
    engine = ("--engine", "apptainer", "--lock", "images.toml")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    made = TwoHosts(tmp_path, engine=engine, environment=cache, pybench=warm_pybench)
    for name in "ab":
        _lock(made, name, digest_of("image"))
    return made


def test_an_image_is_made_once_and_both_hosts_run_in_it(two: TwoHosts) -> None:
    """Ranks of both meet on the hosts' network, which the run's containers share for that; nothing is left."""
    with two.host("a", PATH=_install(two, "a")) as a, two.host("b", PATH=_install(two, "b")) as b:
        code, out = ended(a)
        assert (code, ended(b)[0]) == (4, 0), out
    (record,) = two.records()
    assert record.failure is None
    assert [part.name for part in record.hosts] == ["a", "b"]
    assert "none" not in record.argv
    manifest = two.run.read_manifest()
    setup = manifest.container
    assert setup is not None
    assert [relaxation.name for relaxation in setup.relaxations][-1] == "network"
    (file,) = (two.folder / "cache" / "pybench" / "sif").glob("*.sif")
    assert [host.images for host in manifest.machines] == [(file_digest(file),)] * 2
    assert [host.engine for host in manifest.machines] == ["apptainer"] * 2
    logs = [(two.folder / name / "log").read_text().splitlines() for name in "ab"]
    assert logs[0] == [f"build docker://registry.example/tested@{digest_of('image')}", *logs[1]]
    assert logs[1] == ["probe", f"exec {file.name}"]
    assert two.left() == []


def test_enroot_makes_an_image_once_and_both_hosts_run_in_it(tmp_path: Path, warm_pybench: Path) -> None:
    """The same with the engine behind pyxis: one import by digest, a start on each host, nothing left."""
    engine = ("--engine", "enroot", "--lock", "images.toml")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    two = TwoHosts(tmp_path, engine=engine, environment=cache, pybench=warm_pybench)
    hosts = {name: EnrootHost(tmp_path / name, tmp_path / name / "python") for name in "ab"}
    for name in hosts:
        (tmp_path / name / "images.toml").write_text(lock_text())
    path = {name: host.install() for name, host in hosts.items()}
    with two.host("a", PATH=path["a"]) as a, two.host("b", PATH=path["b"]) as b:
        code, out = ended(a)
        assert (code, ended(b)[0]) == (4, 0), out
    (record,) = two.records()
    assert record.failure is None
    assert [part.name for part in record.hosts] == ["a", "b"]
    assert "--net" not in record.argv
    (file,) = (tmp_path / "cache" / "pybench" / "sqsh").glob("*.sqsh")
    manifest = two.run.read_manifest()
    assert [(host.engine, host.images) for host in manifest.machines] == [("enroot", (file_digest(file),))] * 2
    made = f"import docker://registry.example#tested@{digest_of(IMAGE)}"
    assert [host.log for host in hosts.values()] == [
        [made, "probe", f"start {file.name}"],
        ["probe", f"start {file.name}"],
    ]
    assert two.left() == []


def test_what_differs_between_hosts_is_a_line_and_no_run(two: TwoHosts, tmp_path: Path) -> None:
    """Another lock, and no such engine: both hosts end with it."""
    _lock(two, "b", digest_of("another"))
    first = _install(two, "a")
    with two.host("a", PATH=first) as a, two.host("b", PATH=str(tmp_path / "none")) as b:
        for code, out in (ended(a), ended(b)):
            assert code == 3, out
            assert "host b: apptainer is not installed; install or start it, choose another --engine" in out
    with two.host("a", PATH=first) as a, two.host("b", PATH=_install(two, "b")) as b:
        for code, out in (ended(a), ended(b)):
            assert code == 3, out
            assert "host b: image tested is sha256:" in out
            assert "give both the same --lock, and fetch it: pybench images pull tested" in out
    assert not (two.folder / "a" / "runs").exists()


def test_an_interrupt_while_an_image_is_made(two: TwoHosts) -> None:
    """SIGTERM to the host that leads: the program that makes it ends, the other host is let go, nothing is begun."""
    path = _install(two, "a")
    made = two.folder / "making"
    shell_program(
        two.folder / "a" / "bin" / "apptainer",
        '[ "$1" = build ] || exec echo apptainer version 1.3.6\n'
        f"echo $$ > {made}.part; mv {made}.part {made}\nexec sleep 600",
    )
    with two.host("a", PATH=path) as a, two.host("b", PATH=_install(two, "b")) as b:
        wait_for(made.exists, LIMIT_S)
        a.send_signal(signal.SIGTERM)
        found = ended(a), ended(b)
    assert [code for code, _ in found] == [130, 3], found
    assert "the run was interrupted on the host that leads" in found[1][1]
    wait_for(lambda: not Path(f"/proc/{made.read_text().strip()}").exists())
    assert not (two.folder / "a" / "runs").exists()
