"""Full disks, in the kernel's words and in those of engines."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from pybench.engines.error import engine_error
from pybench.machine.disk import disk_full_error, require_room, room_text
from pybench.model.errors import MachineError


def test_what_a_full_device_refuses(tmp_path: Path) -> None:
    """Where, how full and what next; the device itself is always full."""
    with (
        pytest.raises(MachineError, match=rf"{tmp_path}: No space left on device \([\d,]+ bytes free\); do it"),
        disk_full_error(tmp_path, "do it"),
        Path("/dev/full").open("wb") as stream,
    ):
        stream.write(b"x")


def test_a_quota_is_a_full_disk(tmp_path: Path) -> None:
    """In its own words."""
    with pytest.raises(MachineError, match="Disk quota exceeded"), disk_full_error(tmp_path, ""):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_other_refusals_are_not_taken_for_it(tmp_path: Path) -> None:
    """They have their own remedies."""
    with pytest.raises(PermissionError), disk_full_error(tmp_path, ""):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_room_is_asked_for_and_given_back(tmp_path: Path) -> None:
    """More than any disk has is refused, and nothing of the try stays."""
    require_room(tmp_path, 2**16)
    with pytest.raises(OSError, match=r"No space left|File too large"):
        require_room(tmp_path, 2**62)
    assert not list(tmp_path.iterdir())


def test_room_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    """It will be on the disk of what there is."""
    assert room_text(tmp_path / "a" / "b").endswith(" bytes free")


@pytest.mark.parametrize(
    "words",
    [
        "failed to register layer: write /usr/lib/x.so: no space left on device",
        "Error response from daemon: mkdir /var/lib/docker/overlay2/0a1b-init: no space left on device.",
        'Error: writing blob: storing blob to file "/var/tmp/storage1/1": write /var/tmp/1: no space left on device',
        "ERROR: failed to solve: failed to copy files: copy file range failed: no space left on device",
        "FATAL:   While making image from oci registry: while fetching: write: no space left on device",
        "Error: write /home/me/.local/share/containers/storage/tmp: disk quota exceeded",
    ],
)
def test_engines_that_meet_one(words: str) -> None:
    """As docker, podman, buildkit and apptainer say it: where they keep images, and how full that is."""
    error = engine_error("docker", "/", "can't pull x", words, "check the network")
    assert str(error).startswith(f"docker can't pull x: {words}; free space in / (")
    assert " bytes free), then run the same command again" in str(error)


def test_engines_that_fail_otherwise() -> None:
    """With the caller's remedy, or none."""
    assert str(engine_error("podman", "/", "can't pull x", "denied", "log in")) == "podman can't pull x: denied; log in"
    assert str(engine_error("podman", None, "can't start", "denied")) == "podman can't start: denied"
