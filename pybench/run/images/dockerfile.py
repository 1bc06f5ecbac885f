"""A recipe of an image: unless all it starts from and installs has a digest, the image is another one tomorrow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pybench.model.errors import FileError, Problem

_FROM = re.compile(r"FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_PIP = re.compile(r"\bpip3?\s+install\b")


def check_dockerfile(path: Path) -> None:
    """Raise ``FileError`` with every base that has no digest and every ``pip install`` that checks no hashes."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError((Problem(file=str(path), line=None, path="", message=f"can't be read: {error}"),)) from error
    problems = tuple(
        Problem(file=str(path), line=line, path="", message=message) for line, message in _problems(_instructions(text))
    )
    if problems:
        raise FileError(problems)


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """Each instruction with its continuation lines joined, and the line it begins on."""
    begun, parts = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#"):
            continue
        begun = begun if parts else number
        parts += line.strip()
        if parts.endswith("\\"):
            parts = parts[:-1] + " "
        elif parts:
            yield begun, parts
            parts = ""


def _problems(instructions: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    stages = {"scratch"}
    for line, text in instructions:
        if base := _FROM.match(text):
            if base[1] not in stages and not _DIGEST.search(base[1]):
                yield (
                    line,
                    f"FROM {base[1]} has no digest; write REPOSITORY@sha256:…, as `pybench images lock` finds it",
                )
            stages.add(base[2] or base[1])
        # The exec form has its words in quotes.
        words = re.sub(r'[\[\]",\s]+', " ", text)
        if text.upper().startswith("RUN") and _PIP.search(words) and "--require-hashes" not in words:
            yield line, "pip install without --require-hashes; pin every package by hash in a requirements file"
