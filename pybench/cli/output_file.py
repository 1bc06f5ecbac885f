"""A file that a command writes: beside its place first, then renamed, so that nobody reads half of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pybench.model.errors import UsageError


def write_text(file: Path, text: str) -> None:
    """Write a text. Raises ``UsageError``."""
    replace_file(file, lambda path: path.write_text(text, encoding="utf-8"))


def write_bytes(file: Path, content: bytes) -> None:
    """Write what is no text. Raises ``UsageError``."""
    replace_file(file, lambda path: path.write_bytes(content))


def replace_file(file: Path, write: Callable[[Path], object]) -> None:
    """Write beside the file, then put it in its place; pipes and devices are written to as they are."""
    special = file.exists() and not file.is_file()
    target = file if special else file.resolve()
    path = target if special else target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        write(path)
        if not special:
            path.replace(target)
    except OSError as error:
        if not special:
            path.unlink(missing_ok=True)
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from error
