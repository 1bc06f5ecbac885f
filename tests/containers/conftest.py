"""Real engines, and an image for them that is made here."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pybench.model.container import ContainerRequest, EngineFacts
from pybench.run.engines.base import get_engine
from pybench.run.engines.oci import engine
from pybench.run.engines.oci.confinement import Confinement, confinement_for
from pybench.run.engines.oci.launcher import OciLauncher, remove_orphans
from tests.containers.boxed_engine import TAG, Boxed, lock_text, site_packages
from tests.containers.root_image import write_image
from tests.ports import port_for

REQUIRED = "PYBENCH_REQUIRE_ENGINES"
"""Comma-separated engines whose absence is a failure instead of a skip; CI sets it."""


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The image as a file, and its id."""
    path = tmp_path_factory.mktemp("image") / "image.tar"
    packages = site_packages()
    libraries = [*packages.glob("torch/lib/*.so*"), *packages.glob("numpy.libs/*.so*")]
    return path, write_image(path, TAG, sorted(libraries))


@pytest.fixture(autouse=True)
def _scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scratch folder of the test's own: what other tests leave in the machine's meanwhile is not counted."""
    folder = str(tmp_path_factory.mktemp("scratch"))
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", folder)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """An engine belongs to the machine: two sessions of its tests would count and remove each other's containers."""
    with (Path(tempfile.gettempdir()) / f"pybench-test-{name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextmanager
def _relaxed_as(found: Confinement) -> Iterator[None]:
    """Have each launcher here begin with what this machine made the first one relax: a refusal takes a start.

    Programs that tests start find out by themselves.
    """

    def known(request: ContainerRequest, facts: EngineFacts, host_ids: tuple[int, int]) -> Confinement:
        tight = confinement_for(request, facts, host_ids)
        return replace(
            tight,
            pids_limit=found.pids_limit,
            ulimits=found.ulimits,
            engine_options=found.engine_options,
            relaxations=(*tight.relaxations, *found.relaxations),
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, confinement_for.__name__, known)
        yield


@pytest.fixture(scope="session", params=["docker", "podman"])
def boxed(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Boxed]:
    """Each engine in turn."""
    name: str = request.param
    reason = get_engine(name).find().reason
    if reason:
        if name in os.environ.get(REQUIRED, "").split(","):
            pytest.fail(f"{REQUIRED} names {name}, but {reason}")
        pytest.skip(reason)
    with _alone(name):
        path, image_id = request.getfixturevalue("archive")  # 100 MB, not written where no engine reads it
        subprocess.run([name, "load", "--input", str(path)], capture_output=True, check=True)
        remove_orphans((name,), "")  # of a session that was killed
        lock = tmp_path_factory.mktemp("lock") / "images.toml"
        lock.write_text(lock_text(image_id), encoding="utf-8")
        boxed = Boxed(name, lock, image_id)
        with _relaxed_as(boxed.launcher().confinement):
            yield boxed
        subprocess.run([name, "image", "rm", "--force", image_id], capture_output=True, check=False)


@pytest.fixture(scope="session")
def launcher(boxed: Boxed) -> OciLauncher:
    """The launcher of a suite without a ``[container]``."""
    return boxed.launcher()


@pytest.fixture(scope="session")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry on loopback that serves the image as ``pybench/test:1``; its name with the port."""
    absent = [name for name in ("docker-registry", "skopeo") if shutil.which(name) is None]
    if absent and os.environ.get(REQUIRED):
        pytest.fail(f"{absent[0]} is not installed, and {REQUIRED} asks for real engines")
    if absent:
        pytest.skip(f"{absent[0]} is not installed")
    port = port_for(request.node)
    folder = tmp_path_factory.mktemp("registry")
    settings = folder / "registry.yml"
    settings.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/store}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n",
        encoding="utf-8",
    )
    with subprocess.Popen(
        ["docker-registry", "serve", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        name = f"127.0.0.1:{port}"
        copy = ("skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false")
        image = (f"docker-archive:{request.getfixturevalue('archive')[0]}", f"docker://{name}/pybench/test:1")
        subprocess.run([*copy, *image], check=True, capture_output=True)
        yield name
        server.terminate()


@pytest.fixture
def registry(served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The registry's name, which engines and skopeo trust without a certificate."""
    settings = tmp_path / "registries.conf"
    settings.write_text(f'[[registry]]\nlocation = "{served}"\ninsecure = true\n')
    monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(settings))
    return served
