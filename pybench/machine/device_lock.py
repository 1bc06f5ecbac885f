"""One run at a time on a GPU, or on a CPU core: two at once measure each other, and nothing in their records shows it.

Each device has a lock file, named for it, which the run's process holds; the kernel releases it however that ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pybench.model.errors import MachineError

FOLDER_VARIABLE = "PYBENCH_LOCKS"
_MAX_OWNER_BYTES = 4096
# Every user of the machine may lock; none may remove another's file.
_FOLDER_MODE, _FILE_MODE = 0o1777, 0o666


def lock_folder() -> Path:
    """Where this machine's locks are: the folder that ``PYBENCH_LOCKS`` names, else one that all users share."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir(), "pybench-locks"))


@contextmanager
def locked_devices(uuids: Sequence[str], owner: str, notify: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the GPUs named by UUID, without any the cores that this process may use; ``owner`` describes the run.

    Where another run holds one of them, ``notify`` is called with its description, and it is waited for. Raises
    ``MachineError`` without ``notify``, and where a lock can't be made.
    """
    names = sorted(uuids) or [f"core-{core}" for core in sorted(os.sched_getaffinity(0))]
    folder = lock_folder()
    with ExitStack() as held:
        try:
            with suppress(FileExistsError):
                folder.mkdir(parents=True)
                folder.chmod(_FOLDER_MODE)
        except OSError as error:
            raise MachineError(f"{folder}: cannot make the folder of locks: {error.strerror}") from error
        for name in names:
            try:
                held.enter_context(_locked(folder, name, owner, notify))
            except OSError as error:
                remedy = f"set {FOLDER_VARIABLE} to a folder on a local disk that every user of the GPUs can write"
                raise MachineError(f"{folder}: cannot lock {name}: {error.strerror}; {remedy}") from error
        yield


@contextmanager
def _locked(folder: Path, name: str, owner: str, notify: Callable[[str], None] | None) -> Iterator[None]:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        # With fs.protected_regular, O_CREAT is refused for another user's file in a folder that all may write.
        file = os.open(folder / name, flags)
    except FileNotFoundError:
        file = os.open(folder / name, flags | os.O_CREAT, _FILE_MODE)
    try:
        with suppress(PermissionError):  # another user made it; its mode is what the umask left
            os.fchmod(file, _FILE_MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(file, _MAX_OWNER_BYTES, 0).decode(errors="replace").strip()
            in_use = f"{name} is in use by {other or 'another run of pybench'}"
            if notify is None:
                raise MachineError(f"{in_use}; wait for it to end") from None
            notify(f"{in_use}; waiting for it to end")
            fcntl.flock(file, fcntl.LOCK_EX)
        os.ftruncate(file, 0)
        os.pwrite(file, f"{owner}\n".encode(errors="replace"), 0)
        yield
    finally:
        os.close(file)
