"""Two runs never measure on one device at a time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from pybench.machine.device_lock import locked_devices
from pybench.model.errors import MachineError
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("machine.device_lock")


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYBENCH_LOCKS", str(tmp_path / "locks"))


def test_the_second_run_is_refused_by_name() -> None:
    """On any GPU that both want; on other GPUs it runs."""
    with locked_devices(("GPU-a", "GPU-b"), "process 7, runs/first"):
        with (
            pytest.raises(MachineError, match="GPU-b is in use by process 7, runs/first; wait for it to end"),
            locked_devices(("GPU-b", "GPU-c"), "process 8, runs/second"),
        ):
            pytest.fail("entered twice")
        with locked_devices(("GPU-c",), "process 8, runs/second"):
            pass
    with locked_devices(("GPU-a", "GPU-b"), "process 9, runs/third"):
        pass


def test_cores_are_devices_where_there_is_no_gpu() -> None:
    """Cores that the process may use."""
    core = min(os.sched_getaffinity(0))
    with (
        locked_devices((), "process 7, runs/first"),
        pytest.raises(MachineError, match=f"core-{core} is in use by process 7"),
        locked_devices((), "process 8, runs/second"),
    ):
        pytest.fail("entered twice")


def test_a_killed_run_holds_nothing() -> None:
    """The kernel lets go, whatever the file says."""
    code = (
        "import os, signal\nfrom pybench.machine.device_lock import locked_devices\n"
        "with locked_devices(('GPU-a',), 'gone'):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run((sys.executable, "-c", code), check=False).returncode == -9
    with locked_devices(("GPU-a",), "process 8, runs/second"):
        pass


def test_a_link_in_a_locks_place_is_not_followed(tmp_path: Path) -> None:
    """Somebody else may write to the shared folder."""
    (tmp_path / "locks").mkdir()
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "locks" / "GPU-a").symlink_to(tmp_path / "precious")
    with pytest.raises(MachineError, match="cannot lock GPU-a"), locked_devices(("GPU-a",), "process 7"):
        pytest.fail("entered")
    assert (tmp_path / "precious").read_text() == "kept"
    names = ("GPU-0", "GPU-a")
    with pytest.raises(MachineError, match="cannot lock GPU-a"), locked_devices(names, "process 7"):
        pytest.fail("entered")


def test_the_second_run_waits() -> None:
    """It names the other run, and goes on after its end."""
    first = ExitStack()
    first.enter_context(locked_devices(("GPU-a",), "process 7, runs/first"))
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        first.close()

    with locked_devices(("GPU-a",), "process 8, runs/second", note):
        assert notes == [SENTENCES["the_second_run_waits"]]
        with pytest.raises(MachineError, match="in use by process 8"), locked_devices(("GPU-a",), "process 9"):
            pytest.fail("entered twice")


def test_a_file_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fs.protected_regular, as systemd sets it, a file of another user is never opened to create it."""
    plain = os.open

    def protected(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not flags & os.O_EXCL and path.exists():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return plain(path, flags, mode)

    monkeypatch.setattr(os, "open", protected)
    for owner in ("user a", "user b"):
        with locked_devices(("GPU-a",), owner):
            pass


def test_a_wait_has_a_limit() -> None:
    """After which the holder is named."""
    with (
        locked_devices(("GPU-a",), "process 7"),
        pytest.raises(MachineError, match="GPU-a is in use by process 7; wait for it to end"),
        locked_devices(("GPU-a",), "process 8", lambda _line: None, limit_s=0.0),
    ):
        pytest.fail("entered twice")
