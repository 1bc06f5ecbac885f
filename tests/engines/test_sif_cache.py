"""Image files: made once, whole or not at all, whoever asks at the same time."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from pybench.engines.apptainer.sif_cache import file_digest, sif_file, sif_path
from pybench.engines.base import Argv
from pybench.machine.command import CommandResult
from pybench.model.errors import MachineError

DIGEST = "sha256:" + hashlib.sha256(b"image").hexdigest()
REFERENCE = f"docker.io/a/b@{DIGEST}"


class Builder:
    """Writes what it is asked for as slowly as it is told, and says how often it was asked."""

    def __init__(self, answer: CommandResult = CommandResult(0, "", "")) -> None:  # noqa: B008 - frozen
        self.answer = answer
        self.targets: list[Path] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, argv: Argv) -> CommandResult:
        target = Path(argv[-2])
        self.targets.append(target)
        target.write_bytes(b"half")
        self.go_on.wait(60)
        target.write_bytes(b"whole")
        return self.answer


def test_made_once_under_its_digest(tmp_path: Path) -> None:
    """The second time nothing is asked; the file's own digest is kept beside the image's."""
    build = Builder()
    first = sif_file(tmp_path / "sif", REFERENCE, build)
    first.with_suffix(".lock").unlink()
    assert sif_file(tmp_path / "sif", REFERENCE, build) == first == sif_path(tmp_path / "sif", REFERENCE)
    assert DIGEST.replace(":", "-") in first.name
    assert len(build.targets) == 1
    assert [path.name for path in first.parent.iterdir()] == [first.name]  # a folder that only others write will do
    assert file_digest(first) == "sha256:" + hashlib.sha256(b"whole").hexdigest()


def test_a_second_process_waits_for_the_first(tmp_path: Path) -> None:
    """It never sees half a file, and doesn't build another."""
    build = Builder()
    build.go_on.clear()
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: found.append(sif_file(tmp_path, REFERENCE, build).read_bytes()))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    while not (build.targets and build.targets[0].exists()):
        pass
    assert not sif_path(tmp_path, REFERENCE).exists()
    build.go_on.set()
    for thread in threads:
        thread.join(60)
    assert found == [b"whole", b"whole"]
    assert len(build.targets) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "FATAL: While making image: no space left on device",
            r"no space left on device; free space in /.* bytes free",
        ),
        ("FATAL: unauthorized", "can't make an image file of docker.io/a/b@sha256:.*: FATAL: unauthorized$"),
    ],
)
def test_a_failure_leaves_no_file(tmp_path: Path, words: str, says: str) -> None:
    """The next one to ask builds again."""
    with pytest.raises(MachineError, match=says):
        sif_file(tmp_path, REFERENCE, Builder(CommandResult(255, "", words)))
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]
    assert sif_file(tmp_path, REFERENCE, Builder()).read_bytes() == b"whole"
