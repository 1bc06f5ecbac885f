"""Real engines, and an image for them that is made here."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybench.machine.engines import find_engine
from pybench.model.container import EngineName
from pybench.runner.container import remove_orphans
from tests.containers.boxed_engine import TAG, Boxed, lock_text, site_packages
from tests.containers.root_image import write_image

REQUIRED = "PYBENCH_REQUIRE_ENGINES"
"""Comma-separated engines whose absence is a failure instead of a skip; CI sets it."""


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The image as a file, and its id."""
    path = tmp_path_factory.mktemp("image") / "image.tar"
    packages = site_packages()
    libraries = [*packages.glob("torch/lib/*.so*"), *packages.glob("numpy.libs/*.so*")]
    return path, write_image(path, TAG, sorted(libraries))


@pytest.fixture(scope="session")
def _alone() -> Iterator[None]:
    """Engines belong to the machine: two sessions of these tests would count and remove each other's containers."""
    with (Path(tempfile.gettempdir()) / "pybench-test-containers.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session", params=["docker", "podman"])
def boxed(
    request: pytest.FixtureRequest,
    archive: tuple[Path, str],
    tmp_path_factory: pytest.TempPathFactory,
    _alone: None,
) -> Iterator[Boxed]:
    """Each engine in turn."""
    name: EngineName = request.param
    reason = find_engine(name).reason
    if reason:
        if name in os.environ.get(REQUIRED, "").split(","):
            pytest.fail(f"{REQUIRED} names {name}, but {reason}")
        pytest.skip(reason)
    path, image_id = archive
    subprocess.run([name, "load", "--input", str(path)], capture_output=True, check=True)
    remove_orphans((name,), "")  # of a session that was killed
    lock = tmp_path_factory.mktemp("lock") / "images.toml"
    lock.write_text(lock_text(image_id), encoding="utf-8")
    yield Boxed(name, lock, image_id)
    subprocess.run([name, "image", "rm", "--force", image_id], capture_output=True, check=False)
