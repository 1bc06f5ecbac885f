"""Secrets kept out of everything that stays of an attempt: its record, its log, whatever else the worker wrote.

It covers programs that print their environment, not programs that hide a secret on purpose by encoding it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

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
        """Take secrets out of every file below ``folder``; what can't be looked into goes. Follows no links."""
        if not self._text:
            return
        for parent, _, names in os.walk(folder):
            for path in (Path(parent, name) for name in names):
                if stat.S_ISREG(path.lstat().st_mode):
                    self._file(path)

    def _file(self, path: Path) -> None:
        if path.lstat().st_size > _MAX_FILE_BYTES:
            path.unlink()
            return
        try:
            with path.open("r+b") as stream:
                if any(self._bytes.search(line) for line in stream):
                    stream.seek(0)
                    cleaned = self._bytes.sub(MARK.encode(), stream.read())
                    stream.seek(0)
                    stream.write(cleaned)
                    stream.truncate()
        except PermissionError:
            path.unlink()

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


def _spellings(secret: str) -> Iterator[str]:
    """As it is, as Python prints it, and as JSON writes it."""
    yield secret
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
