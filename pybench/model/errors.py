"""Every error a user can cause or meet. A message names the place, what was found, and what to do next."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Literal


class PybenchError(Exception):
    """Base of all errors that end in a plain message instead of a traceback."""


class UsageError(PybenchError):
    """The command line requests something that does not exist or does not fit together."""


ProblemKind = Literal["unreadable", "syntax", "schema", "rule", "more"]
"""``unreadable``: absent, or can't be read or written. ``schema``: an unknown or missing key, or a value of another
type or range. ``rule``: values contradict each other or the request. ``more``: problems that are not listed.
"""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing wrong in a file: ``path`` is the key path inside it, ``line`` is 1-based where known."""

    kind: ProblemKind
    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


class FileError(PybenchError):
    """A suite file or an expected table is not valid; carries every problem found."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class MachineError(PybenchError):
    """The machine, its driver or a backend is in no state to measure."""


class RunFolderError(PybenchError):
    """A run's folder can't be read, or belongs to another suite, machine or version."""


_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
_FAULTS = _FULL | {errno.EIO, errno.EROFS, errno.EFBIG, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


def is_disk_full(error: OSError) -> bool:
    """Whether the disk, or this user's share of it, has no room left."""
    return error.errno in _FULL


def is_machine_fault(error: OSError) -> bool:
    """Whether the machine failed, whatever was to be done: a disk that is full, broken or read-only, no file left."""
    return error.errno in _FAULTS


REMEDIES = {
    **dict.fromkeys(_FULL, "free space there"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "change its permissions"),
    errno.EROFS: "make it writable",
    errno.EIO: "look for the fault in the kernel's log (dmesg)",
    errno.EISDIR: "give a file",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow more open files (sysctl fs.file-max)",
    errno.ENOMEM: "free memory",
}


def fault_text(error: Exception, absent: str = "") -> str:
    """The system's words for a file and, where one is known, the next step; ``absent`` is that for a missing one."""
    number = getattr(error, "errno", None)
    remedy = absent if number == errno.ENOENT else REMEDIES.get(number or 0)
    return "; ".join(filter(None, (getattr(error, "strerror", None) or str(error), remedy)))
