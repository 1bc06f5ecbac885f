"""Secrets kept out of everything that stays of an attempt: its record, its log, whatever else the worker wrote.

It covers programs that print their environment, not programs that hide a secret on purpose by encoding it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

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
        return self._clean(value) if self._text else value

    def files(self, folder: Path) -> None:
        """Take secrets out of every file below ``folder`` and out of its name; what can't be looked into goes.

        Follows no links.
        """
        if not self._text:
            return
        # Bottom up: a folder's new name is not looked for.
        for parent, folders, names in os.walk(folder, topdown=False, onerror=_remove_hidden):
            for path in (Path(parent, name) for name in (*names, *folders)):
                self._entry(path)

    def _entry(self, path: Path) -> None:
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
                cleaned, found = self._bytes.subn(MARK.encode(), stream.read())
                if found:
                    stream.seek(0)
                    stream.write(cleaned)
                    stream.truncate()
        except PermissionError:
            path.unlink()

    def _name(self, path: Path) -> None:
        cleaned = os.fsdecode(self._bytes.sub(MARK.encode(), os.fsencode(path.name)))
        if cleaned == path.name or not os.path.lexists(path):
            return
        free = (
            path.with_name(f"{cleaned}{suffix}")
            for suffix in itertools.chain([""], (f".{n}" for n in itertools.count(2)))
        )
        path.rename(next(name for name in free if not os.path.lexists(name)))

    def _clean(self, value: Any) -> Any:  # noqa: ANN401 - any field of a record
        if isinstance(value, str):
            return self._text.sub(MARK, value) if self._text else value
        if isinstance(value, tuple):
            return tuple(map(self._clean, value))
        if isinstance(value, dict):
            return {self._clean(key): self._clean(inside) for key, inside in value.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            inside = {field.name: self._clean(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return dataclasses.replace(value, **inside)
        return value


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
