"""One run at a time on a GPU, or on a CPU core: two at once measure each other, and nothing in their records shows it.

Each device has a lock file, named for it, which the run's process holds; the kernel releases it however that ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pybench.machine.environment import host_clock
from pybench.model.errors import MachineError

FOLDER_VARIABLE = "PYBENCH_LOCKS"
_MAX_OWNER_BYTES = 4096
_RETRY_S = 0.25
# Every user of the machine may lock; none may remove another's file.
_FOLDER_MODE, _FILE_MODE = 0o1777, 0o666


def lock_names(uuids: Sequence[str]) -> tuple[str, ...]:
    """GPUs' UUIDs, or cores with boot and folder: equal where two hosts take one. Raises ``MachineError``."""
    folder = _lock_folder().stat()
    where = f"{host_clock()[0]}/{folder.st_dev}/{folder.st_ino}/"
    return tuple(name if uuids else where + name for name in _devices(uuids))


@contextmanager
def locked_devices(
    uuids: Sequence[str], owner: str, notify: Callable[[str], None] | None = None, limit_s: float | None = None
) -> Iterator[None]:
    """Hold the GPUs named by UUID, without any the cores that this process may use; ``owner`` describes the run.

    Where another run holds one of them, ``notify`` is called with its description, and it is waited for, ``limit_s`` at
    most. Raises ``MachineError`` without ``notify``, after the limit, and where a lock can't be made.
    """
    folder = _lock_folder()
    deadline_s = None if limit_s is None else time.monotonic() + limit_s
    with ExitStack() as held:
        for name in _devices(uuids):
            try:
                held.enter_context(_locked(folder, name, owner, notify, deadline_s))
            except OSError as error:
                remedy = f"set {FOLDER_VARIABLE} to a folder on a local disk that every user of the GPUs can write"
                raise MachineError(f"{folder}: cannot lock {name}: {error.strerror}; {remedy}") from error
        yield


def _devices(uuids: Sequence[str]) -> list[str]:
    return sorted(uuids) or [f"core-{core}" for core in sorted(os.sched_getaffinity(0))]


def _lock_folder() -> Path:
    """This machine's folder of locks: ``PYBENCH_LOCKS``, else a shared one."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir(), "pybench-locks"))
    try:
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(_FOLDER_MODE)
    except OSError as error:
        raise MachineError(f"{folder}: cannot make the folder of locks: {error.strerror}") from error
    return folder


@contextmanager
def _locked(
    folder: Path, name: str, owner: str, notify: Callable[[str], None] | None, deadline_s: float | None
) -> Iterator[None]:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    # With fs.protected_regular, O_CREAT alone is refused for another user's file in a folder that all may write.
    with suppress(FileExistsError):
        os.close(os.open(folder / name, flags | os.O_CREAT | os.O_EXCL, _FILE_MODE))
    file = os.open(folder / name, flags)
    try:
        with suppress(PermissionError):  # another user made it; its mode is what the umask left
            os.fchmod(file, _FILE_MODE)
        in_use = ""
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if not in_use:
                other = os.pread(file, _MAX_OWNER_BYTES, 0).decode(errors="replace").strip()
                in_use = f"{name} is in use by {other or 'another run of pybench'}"
                if notify is not None:
                    notify(f"{in_use}; waiting for it to end")
            if notify is None or (deadline_s is not None and time.monotonic() > deadline_s):
                raise MachineError(f"{in_use}; wait for it to end")
            time.sleep(_RETRY_S)
        os.ftruncate(file, 0)
        os.pwrite(file, f"{owner}\n".encode(errors="replace"), 0)
        yield
    finally:
        os.close(file)
