"""Image files: made once, whole or not at all, whoever asks at the same time."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pybench.model.errors import MachineError
from pybench.run.engines.image_launcher import file_digest, image_path, made_once

DIGEST = "sha256:" + hashlib.sha256(b"image").hexdigest()
REFERENCE = f"docker.io/a/b@{DIGEST}"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the image's file belongs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return image_path("sif", REFERENCE)


class Builder:
    """Writes the requested file with a delay, and counts requests."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.targets: list[Path] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, reference: str, target: Path) -> None:
        assert reference == REFERENCE
        assert not target.exists()
        self.targets.append(target)
        target.write_bytes(b"half")
        self.go_on.wait(60)
        if self.error:
            raise MachineError(self.error)
        target.write_bytes(b"whole")


def test_made_once_under_its_digest(file: Path) -> None:
    """The second time no request is made; the file's digest is kept with the image's."""
    build = Builder()
    assert made_once(file, REFERENCE, build) == file
    file.with_suffix(".lock").unlink()
    assert made_once(file, REFERENCE, build) == file
    assert file.parent.parts[-2:] == ("pybench", "sif")
    assert file.name == DIGEST.replace(":", "-") + ".sif"
    assert len(build.targets) == 1
    assert [path.name for path in file.parent.iterdir()] == [file.name]  # a folder that only others write will do
    assert file_digest(file) == "sha256:" + hashlib.sha256(b"whole").hexdigest()


def test_a_second_process_waits_for_the_first(file: Path) -> None:
    """It never sees half a file, and doesn't build another."""
    build = Builder()
    build.go_on.clear()
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(made_once(file, REFERENCE, build).read_bytes())) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    while not (build.targets and build.targets[0].exists()):
        pass
    assert not file.exists()
    build.go_on.set()
    for thread in threads:
        thread.join(60)
    assert found == [b"whole", b"whole"]
    assert len(build.targets) == 1


@pytest.mark.parametrize(("put", "what"), [(Path.mkdir, "a folder"), (os.mkfifo, "no regular file")])
def test_what_is_no_file_is_refused(file: Path, put: Callable[[Path], None], what: str) -> None:
    """It is not read, and not removed: one line names it and what to do."""
    build = Builder()
    file.parent.mkdir(parents=True)
    put(file)
    with pytest.raises(MachineError) as error:
        made_once(file, REFERENCE, build)
    assert str(error.value).startswith(f"{file}: {what} in place of the image file; remove it")
    assert (build.targets, file.exists()) == ([], True)


def test_a_failure_leaves_no_file(file: Path) -> None:
    """The next request builds again, also over the files of a killed one."""
    build = Builder("no such image")
    with pytest.raises(MachineError, match="no such image"):
        made_once(file, REFERENCE, build)
    assert [path.suffix for path in file.parent.iterdir()] == [".lock"]
    build.targets[0].write_bytes(b"half")
    assert made_once(file, REFERENCE, Builder()).read_bytes() == b"whole"
