"""Variables that a worker inherits from the shell: an allow-list, so that two shells give one measurement."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, unquote

from pybench.model.text import os_text
from pybench.model.tuning import credentials_in, is_secret, tunes

# Fewest characters of a credential's part that is redacted; shorter ones may be words.
_MIN_ALONE = 10


def tuning(host: Mapping[str, str]) -> dict[str, str]:
    """Tuning variables that mean the same inside a container: no secrets, no paths, nothing on two lines."""
    return {
        name: value
        for name, value in host.items()
        if tunes(name, value) and not value.startswith("/") and not {"\n", "\r", "\0"}.intersection(value)
    }


def recorded(values: Mapping[str, str], secrets: Iterable[str] = ()) -> dict[str, str]:
    """``values`` sorted by name, with :data:`MARK` for ``secrets``, secret names and credentials inside."""
    hidden = frozenset(secrets)
    kept = {}
    for name, value in sorted(values.items()):
        kept[name] = MARK if name in hidden or is_secret(name, value) else os_text(value)
        for part in credentials_in(kept[name]):
            kept[name] = kept[name].replace(part, MARK)
    return kept


def passed_secrets(passed: Mapping[str, str], secrets: Iterable[str]) -> Iterator[str]:
    """Texts that give a credential away in a worker's log: the suite's ``secrets``, and parts of what was ``passed``.

    Short ones are such texts only with a user and ``:``, or a ``@``: they may be words that a record needs.
    """
    yield from (passed[name] for name in secrets)
    for part in (part for value in passed.values() for part in credentials_in(value)):
        yield part if ":" in part else f"{part}@"
        words = (part, part.partition(":")[2], *re.split("[&;=]", part))
        yield from (word for word in words if len(word) >= _MIN_ALONE)


def fixed(gpu_uuids: tuple[str, ...]) -> dict[str, str]:
    """What every worker gets, whatever the shell sets: its GPUs by UUID, no network look-ups, whole lines of log."""
    values = {
        "CUDA_VISIBLE_DEVICES": ",".join(gpu_uuids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    # One rank is one core: otherwise a single rank would use every core and no speedup could show.
    return values if gpu_uuids else {**values, "OMP_NUM_THREADS": "1"}


Kept = TypeVar("Kept")

MARK = "***"
# A sparse file is as large as it likes; what is larger is removed unread.
_MAX_FILE_BYTES = 2**28
# Longer than the mark, so that a file never grows by it, on a full disk either.
MIN_SECRET_LENGTH = 4


class Redaction:
    """Puts :data:`MARK` in the place of each of ``secrets``."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings = sorted({spelling for secret in secrets for spelling in _spellings(secret)}, key=len, reverse=True)
        self._text = re.compile("|".join(map(re.escape, spellings))) if spellings else None
        self._bytes = re.compile(b"|".join(re.escape(os.fsencode(spelling)) for spelling in spellings))

    def of(self, value: Kept) -> Kept:
        """``value`` without secrets in any text inside: a record, an event, a message."""
        if self._text is None:
            return value
        cleaned: Any = value
        if isinstance(value, str):
            cleaned = self._text.sub(MARK, value)
        elif isinstance(value, tuple):
            cleaned = tuple(map(self.of, value))
        elif isinstance(value, dict):
            cleaned = {self.of(key): self.of(inside) for key, inside in value.items()}
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            inside = {field.name: self.of(getattr(value, field.name)) for field in dataclasses.fields(value)}
            cleaned = dataclasses.replace(value, **inside)
        return cast("Kept", cleaned)

    def files(self, folder: Path) -> None:
        """Take secrets out of names and content of files below ``folder``, without following links."""
        if not self._text:
            return
        # Bottom up: a folder's new name is not looked for.
        for parent, folders, names in os.walk(folder, topdown=False, onerror=_remove_hidden):
            for path in (Path(parent, name) for name in (*names, *folders)):
                if path.is_symlink() and self._bytes.search(os.fsencode(path.readlink())):
                    path.unlink()
                elif os.path.lexists(path):
                    if stat.S_ISREG(path.lstat().st_mode):
                        self._file(path)
                    self._name(path)

    def _file(self, path: Path) -> None:
        if path.lstat().st_size > _MAX_FILE_BYTES:
            path.unlink()
            return
        try:
            with path.open("r+b") as stream:
                cleaned, count = self._bytes.subn(MARK.encode(), stream.read())
                if count:
                    stream.seek(0)
                    stream.write(cleaned)
                    stream.truncate()
        except PermissionError:
            path.unlink()

    def _name(self, path: Path) -> None:
        cleaned = os.fsdecode(self._bytes.sub(MARK.encode(), os.fsencode(path.name)))
        if cleaned == path.name or not os.path.lexists(path):
            return
        suffixes = itertools.chain([""], (f".{number}" for number in itertools.count(2)))
        free = (path.with_name(f"{cleaned}{suffix}") for suffix in suffixes)
        path.rename(next(name for name in free if not os.path.lexists(name)))


def _remove_hidden(error: OSError) -> None:
    """A folder that its reader may not list goes with all that is in it."""
    if not isinstance(error, PermissionError):
        raise error
    Path(error.filename).chmod(stat.S_IRWXU)
    shutil.rmtree(error.filename)


def _spellings(secret: str) -> Iterator[str]:
    """Spellings of the secret in plain text and in URLs, each as Python prints it and as JSON writes it."""
    for text in (secret, quote(secret), quote(secret, safe=""), unquote(secret)):
        yield text
        yield repr(text)[1:-1]
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
