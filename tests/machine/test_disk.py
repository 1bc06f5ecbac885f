"""Full disks, in the kernel's words and in those of engines."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pybench.machine.disk import disk_error, require_room, room_text
from pybench.model.errors import MachineError, fault_text
from pybench.run.engines.base import engine_error
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("machine.disk")


def test_what_a_full_device_refuses(tmp_path: Path) -> None:
    """Where, how full and what next; the device itself is always full."""
    with (
        pytest.raises(
            MachineError,
            match=rf"{tmp_path}: No space left on device \([\d,]+ bytes free\); all is kept: free space",
        ),
        disk_error(tmp_path, "all is kept", " do it"),
        Path("/dev/full").open("wb") as stream,
    ):
        stream.write(b"x")


def test_a_disk_that_is_not_full_but_too_small_names_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words "No space left" beside some bytes that are left does not show how many to free."""

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    message = r"No space left on device \([\d,]+ bytes free of 4,194,304 needed\); all is kept: free space there"
    with pytest.raises(MachineError, match=message), disk_error(tmp_path, "all is kept", " do it"):
        require_room(tmp_path, 2**22)
    assert not list(tmp_path.iterdir())


def test_a_quota_is_a_full_disk(tmp_path: Path) -> None:
    """In its own words."""
    with pytest.raises(MachineError, match="Disk quota exceeded"), disk_error(tmp_path, "", ""):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_other_refusals_are_not_taken_for_it(tmp_path: Path) -> None:
    """They have their own remedies."""
    with pytest.raises(FileExistsError), disk_error(tmp_path, "", ""):
        raise FileExistsError(errno.EEXIST, "File exists")


def test_room_is_asked_for_and_given_back(tmp_path: Path) -> None:
    """More than any disk has is refused, and nothing of the try stays."""
    require_room(tmp_path, 2**16)
    with pytest.raises(OSError, match=r"No space left|File too large"):
        require_room(tmp_path, 2**62)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EIO, "look for the fault in the kernel's log (dmesg), then do it"),
        (errno.EROFS, "make it writable, then do it"),
        (errno.EMFILE, "allow more open files (ulimit -n), then do it"),
        (errno.EFBIG, "allow larger files (ulimit -f), then do it"),
        (errno.EACCES, "make it writable, then do it"),
    ],
)
def test_other_faults_of_the_machine(tmp_path: Path, code: int, remedy: str) -> None:
    """Each names the file, where it is known, and has a remedy."""
    with pytest.raises(MachineError) as failed, disk_error(tmp_path, "all is kept", " do it"):
        raise OSError(code, os.strerror(code), str(tmp_path / "file"))
    assert str(failed.value) == f"{tmp_path}/file: {os.strerror(code)}; all is kept: {remedy}"


def test_the_words_for_a_file() -> None:
    """The system's words, then the next step. The caller gives the step of an absent file."""

    def told(code: int) -> str:
        return fault_text(OSError(code, os.strerror(code)), "make its folder first")

    assert told(errno.ENOSPC) == "No space left on device; free space there"
    assert told(errno.EACCES) == "Permission denied; change its permissions"
    assert told(errno.ENOENT) == "No such file or directory; make its folder first"
    assert told(errno.ENOTDIR) == "Not a directory"
    assert fault_text(ValueError("embedded null byte")) == "embedded null byte"


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENOTDIR, errno.ELOOP])
def test_a_folder_that_is_gone(tmp_path: Path, code: int) -> None:
    """Its content is not claimed to be kept."""
    with pytest.raises(MachineError) as failed, disk_error(tmp_path, "all is kept", " do it"):
        raise OSError(code, os.strerror(code), "room")
    assert str(failed.value) == f"{tmp_path}: {os.strerror(code)}; put it back, then do it"


def test_room_is_not_made_through_a_link(tmp_path: Path) -> None:
    """Targets of links stay; a folder that is a link is refused."""
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "room").symlink_to(tmp_path / "victim")
    require_room(tmp_path / "run", 2**16)
    assert (tmp_path / "victim").read_text() == "kept"
    assert not list((tmp_path / "run").iterdir())
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        require_room(tmp_path / "link", 2**16)


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
    """In the words of docker, podman, buildkit and apptainer: their folder of images, and its free bytes."""
    error = engine_error("docker", "/", "can't pull x", words, "check the network")
    assert str(error).startswith(f"docker can't pull x: {words}; free space in / (")
    assert " bytes free), then run the same command again" in str(error)


def test_engines_that_fail_otherwise() -> None:
    """With the caller's remedy, or none."""
    assert (
        str(engine_error("podman", "/", "can't pull x", "denied", "log in")) == SENTENCES["engines_that_fail_otherwise"]
    )
    assert str(engine_error("podman", None, "can't start", "denied")) == "podman can't start: denied"
