"""The index of a history: one line an entry of the folder, each with a checksum, so that damage is found.

::

    {"checksum": "0a1b2c3d4e5f6071", "entry": {"name": "...", "sources": [...], "run": {...}}}

A line that is damaged, or of another version, is left out: its entry is then read anew. So is one of an entry that
another build of pybench could not read.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pybench.files.reader import Reader
from pybench.files.safe_folder import opened_file, opened_folder
from pybench.model.build import this_build
from pybench.model.figures import FIGURES_VERSION, RunFigures

INDEX_FILE = "index.jsonl"
_HEAD = re.compile(rb'\{"checksum": "([0-9a-f]{16})", "entry": (?=\{)')
_CHUNK_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file that a run was read from, by its path below the history's folder."""

    name: str
    size: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of the folder: a run's figures, or the ``reason`` why there are none.

    ``build`` is that of the pybench whose reason it is, in an index.
    """

    name: str
    sources: tuple[Source, ...]
    run: RunFigures | None = None
    reason: str | None = None
    build: str = field(default="", compare=False)

    def is_current(self, folder: Path, names: Iterable[str]) -> bool:
        """Whether it was read from exactly these files as they are: by size and time, else by their bytes."""
        if [source.name for source in self.sources] != [*names]:
            return False
        return all(_is_unchanged(folder, source) for source in self.sources)


_ENTRY = TypeAdapter(Entry)
_ENTRY_READER = Reader(_ENTRY)


def source_of(folder: Path, name: str) -> Source:
    """A file as it is now. Raises ``OSError``."""
    parent, _, last = name.rpartition("/")
    with opened_folder(folder / parent) as opened, opened_file(opened, last) as file:
        status = os.fstat(file)
        digest = hashlib.sha256()
        while chunk := os.read(file, _CHUNK_BYTES):
            digest.update(chunk)
    return Source(name=name, size=status.st_size, mtime_ns=status.st_mtime_ns, sha256=digest.hexdigest())


def encode_index(entries: Iterable[Entry]) -> bytes:
    """Every line, in order. Raises ``ValueError`` for a text in them that cannot be UTF-8."""
    marked = (entry if entry.run is not None else replace(entry, build=this_build()) for entry in entries)
    bodies = (_ENTRY.dump_json(entry, exclude_defaults=True) for entry in marked)
    return b"".join(b'{"checksum": "%s", "entry": %s}\n' % (_checksum(body), body) for body in bodies)


def decode_index(data: bytes) -> dict[str, Entry]:
    """The entries of whole lines, by name."""
    found = (_decode(line) for line in data.splitlines())
    return {entry.name: entry for entry in found if entry is not None}


def _decode(line: bytes) -> Entry | None:
    head = _HEAD.match(line)
    if head is None or not line.endswith(b"}") or _checksum(body := line[head.end() : -1]) != head[1]:
        return None
    try:
        entry = _ENTRY_READER.read_json(body)
    except ValidationError:
        return None
    is_current = entry.build == this_build() if entry.run is None else entry.run.version == FIGURES_VERSION
    return entry if is_current else None


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest()[:16].encode()


def _is_unchanged(folder: Path, source: Source) -> bool:
    try:
        status = (folder / source.name).lstat()
        if (status.st_size, status.st_mtime_ns) == (source.size, source.mtime_ns):
            return True
        # A checkout by git gives every file a new time.
        return status.st_size == source.size and source_of(folder, source.name).sha256 == source.sha256
    except OSError:
        return False
