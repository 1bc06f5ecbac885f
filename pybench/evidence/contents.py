"""Which files of a run's folder are its evidence, and the list of their digests.

``SHA256SUMS`` has the form of coreutils, so that ``sha256sum -c SHA256SUMS`` checks an unpacked bundle too.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pybench.model.errors import RunFolderError
from pybench.model.manifest import MANIFEST_FILE
from pybench.model.record import JOURNAL_FILE

SUMS = "SHA256SUMS"
MAX_FILES = 20_000
MAX_FILE_BYTES = 2**31
MAX_TOTAL_BYTES = 2**33
_MAX_DEPTH = 12
# What workers write for themselves into an attempt's folder, caches of engines among it, is no evidence.
_OF_ATTEMPT = re.compile(r"attempts/[^/]+/(?:trace\.npz|worker\.log|exchange/(?:orders|events\.\d{1,4})\.jsonl)")
# What a worker of ours may be called, attempts by the characters of a point's id, and nothing hidden.
_PART = re.compile(r"[A-Za-z0-9_=,+@-][A-Za-z0-9_=,.+@-]{0,250}")
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
_CHUNK_BYTES = 2**20


def is_evidence_name(name: str) -> bool:
    """Whether a bundle may hold a file of this name: below its folder, and nothing that a system takes amiss."""
    parts = name.split("/")
    return len(parts) <= _MAX_DEPTH and all(_PART.fullmatch(part) and part.isascii() for part in parts)


def evidence_files(folder: Path, reports: Iterable[str]) -> tuple[str, ...]:
    """Names of all files of a run's folder that are evidence, its ``reports`` among them, sorted.

    Raises ``RunFolderError`` for a link, pipe or device among them, or for more than a run has.
    """
    try:
        names = sorted(_names(folder, reports))
    except OSError as error:
        raise RunFolderError(f"{error.filename or folder}: cannot be read: {error.strerror}") from error
    if len(names) > MAX_FILES:
        raise RunFolderError(f"{folder}: more than {MAX_FILES} files, which no run has")
    return tuple(names)


def _names(folder: Path, reports: Iterable[str]) -> Iterator[str]:
    for name in (MANIFEST_FILE, JOURNAL_FILE, *reports):
        if (folder / name).is_symlink() or (folder / name).exists():
            yield _regular(folder, folder / name)
    for path in _below(folder, folder / "worker"):
        yield _regular(folder, path)
    for path in _below(folder, folder / "attempts"):
        if _OF_ATTEMPT.fullmatch(path.relative_to(folder).as_posix()):
            yield _regular(folder, path)


def _below(folder: Path, top: Path) -> Iterator[Path]:
    """Everything but folders below ``top``. Raises ``RunFolderError`` where a folder of a run is a link."""
    if top.is_symlink():
        _regular(folder, top)
    for parent, inside, files in os.walk(top, onerror=_raise):
        for child in inside:
            path = Path(parent) / child
            if path.is_symlink() and (child == "exchange" or path.parent == folder / "attempts"):
                _regular(folder, path)
        yield from (Path(parent) / name for name in (*files, *(i for i in inside if (Path(parent) / i).is_symlink())))


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _regular(folder: Path, path: Path) -> str:
    name = path.relative_to(folder).as_posix()
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise RunFolderError(f"{path}: not a regular file; a run's folder has no links, pipes or devices")
    if status.st_size > MAX_FILE_BYTES or not is_evidence_name(name):
        raise RunFolderError(f"{path}: a name or size that no file of a run has; remove it if you put it there")
    return name


def digest_of(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()


def sums_text(digests: Mapping[str, str]) -> str:
    """The list's content."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def parse_sums(text: str) -> dict[str, str]:
    """Digests by name. Raises ``ValueError``, which names the line."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        matched = _LINE.fullmatch(line)
        if matched is None or matched[2] in found or not is_evidence_name(matched[2]):
            raise ValueError(f"{SUMS}:{number}: not a digest and the name of a file of its own")
        found[matched[2]] = matched[1]
    return found


def wrong_digests(folder: Path, names: Iterable[str], digests: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Name and fault of each file that is not as its digest has it, is absent, or has none."""
    present = set(names)
    for name in sorted(present | set(digests)):
        if name not in present:
            yield name, f"listed in {SUMS}, but not in the bundle"
        elif name not in digests:
            yield name, f"in the bundle, but not listed in {SUMS}"
        elif digest_of(folder / name) != digests[name]:
            yield name, f"its SHA-256 is not the one in {SUMS}: the file was edited or damaged"
