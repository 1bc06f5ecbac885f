"""Apptainer with a stand-in: the trial before a run, and a host that refuses it."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import cast

import pytest

from pybench.model.container import ContainerRequest
from pybench.model.errors import MachineError
from pybench.run.engines.apptainer.engine import ApptainerLauncher
from pybench.run.engines.base import EngineOptions, LaunchRequirements
from pybench.run.engines.choice import choose_launcher
from tests.builders import image_lock_text
from tests.run.engines.apptainer_host import install_apptainer
from tests.run.engines.enroot_host import digest_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without apptainer, with a lock."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "images.toml").write_text(image_lock_text(digest_of("image")), encoding="utf-8")
    return tmp_path


def launched(folder: Path, request: ContainerRequest | None = None, *, refused: str = "") -> ApptainerLauncher:
    """Arguments of a run on the CPU."""
    install_apptainer(folder / "bin", Path(sys.executable), folder / "log", refused)
    needs = LaunchRequirements(backends=("torch",), device="cpu", request=request or ContainerRequest())
    options = EngineOptions(engine="apptainer", lock=folder / "images.toml")
    return cast("ApptainerLauncher", choose_launcher(options, needs, notify=lambda _text: None))


def loosened(launcher: ApptainerLauncher) -> list[str]:
    return [relaxation.name for relaxation in launcher.container.relaxations]


def test_an_image_is_tried_before_a_run(folder: Path) -> None:
    """The Python found inside is recorded."""
    found = launched(folder)
    (image,) = found.container.images
    assert image.python == platform.python_version()
    assert found.offline
    assert loosened(found) == ["pids_limit", "shm_size", "gpu_files"]
    assert (folder / "log").read_text().splitlines()[1:] == ["probe"]


@pytest.mark.parametrize("request_", [ContainerRequest(), ContainerRequest(relax=("network",))])
def test_a_network_that_cannot_be_taken_away_is_named(folder: Path, request_: ContainerRequest) -> None:
    """Where apptainer is set up so that only an administrator's list of users may have a network of their own."""
    found = launched(folder, request_, refused="--net")
    assert not found.offline
    assert loosened(found) == ["pids_limit", "shm_size", "gpu_files", "network"]


def test_an_image_that_does_not_start_is_an_error_with_a_remedy(folder: Path) -> None:
    """Nothing is measured."""
    with pytest.raises(MachineError, match=r"can't start a worker in image tested: .*--contain is for root; "):
        launched(folder, refused="--contain")
